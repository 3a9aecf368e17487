-- What other processes may be waiting for: jobs that ended, jobs that came. News are hints; whoever misses one looks by
-- itself before long.

local publish_ended, publish_arrivals
do
  function publish_ended()
    local ids = {}
    for i, one in ipairs(ended) do
      ids[i] = one.job
    end
    if #ids > 0 then
      redis.call('PUBLISH', key('news'), cmsgpack.pack('ended', ids))
    end
  end

  -- `lanes`: names of lanes as keys.
  function publish_arrivals(lanes)
    for name in pairs(lanes) do
      redis.call('PUBLISH', key('news'), cmsgpack.pack('arrived', { name }))
    end
  end
end

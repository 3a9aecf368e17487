-- The basin's own record: its clock, and numbers that are never given twice.
--
-- Time neither runs backwards nor stands still, whatever the server's clock does: after a step back it goes on from
-- where it was.

local basin, now, keep_clock
do
  -- Longer than any process that runs jobs stays silent, and time enough for it to come back and keep its leases.
  local SILENCE, GRACE = 3000, 5000

  local function shown_by_clock()
    if TIME ~= '' then
      return tonumber(TIME)
    end
    local time = redis.call('TIME')
    return tonumber(time[1]) * 1000 + floor(tonumber(time[2]) / 1000)
  end

  local function read_clock()
    basin = { last = 0, ahead = 0, leases = 0, tickets = 0, grace_until = 0 }
    local raw = redis.call('GET', BASIN)
    if raw then
      basin.last, basin.ahead, basin.leases, basin.tickets, basin.grace_until = cmsgpack.unpack(raw)
    end
    local clock = shown_by_clock()
    if clock + basin.ahead < basin.last then
      basin.ahead = basin.last - clock
    end
    local time = max(basin.last, clock + basin.ahead)
    if TIME == '' and basin.last > 0 and time - basin.last > SILENCE then
      -- Everybody was cut off: leases that ran out meanwhile are not lost yet.
      basin.grace_until = time + GRACE
    end
    basin.last = time
    return time
  end

  at_start[#at_start + 1] = function()
    now = read_clock()
  end

  function keep_clock()
    redis.call('SET', BASIN, cmsgpack.pack(basin.last, basin.ahead, basin.leases, basin.tickets,
      basin.grace_until))
  end
end

-- The basin's own record: its clock, and numbers that are never given twice.
--
-- Time neither runs backwards nor stands still, whatever the server's clock does: after a step back it goes on from
-- where it was.

local basin, now, keep_clock
do
  basin = { last = 0, ahead = 0, leases = 0, tickets = 0 }

  local function shown_by_clock()
    if ARGV[1] ~= '' then
      return tonumber(ARGV[1])
    end
    local time = redis.call('TIME')
    return tonumber(time[1]) * 1000 + floor(tonumber(time[2]) / 1000)
  end

  local function read_clock()
    local raw = redis.call('GET', BASIN)
    if raw then
      basin.last, basin.ahead, basin.leases, basin.tickets = cmsgpack.unpack(raw)
    end
    local clock = shown_by_clock()
    if clock + basin.ahead < basin.last then
      basin.ahead = basin.last - clock
    end
    basin.last = max(basin.last, clock + basin.ahead)
    return basin.last
  end

  now = read_clock()

  function keep_clock()
    redis.call('SET', BASIN, cmsgpack.pack(basin.last, basin.ahead, basin.leases, basin.tickets))
  end
end

-- Upstreams and their gates.
--
-- Breaker and limiter are kept where others look for them: `circuit_breaker:<u>:failures`, `…:degraded_until` and
-- `rate_limiter:<u>`. Their expiry only collects garbage: what is decided here is decided by what they say.
--
-- A process that shares no gates is the owner of its own, which stand below its name and go some time after it.

local upstream_of, changed_upstream, upstream_denies, take_upstream
do
  local LIVES_IDLE = 300000
  local LIVES_OWNED = 86400000
  local upstreams, upstream_order

  at_start[#at_start + 1] = function()
    upstreams, upstream_order = {}, {}
  end

  -- Days since 1970 of a date of the Gregorian calendar.
  local function days_of(year, month, day)
    if month <= 2 then
      year, month = year - 1, month + 12
    end
    return 365 * year + floor(year / 4) - floor(year / 100) + floor(year / 400)
      + floor((153 * (month - 3) + 2) / 5) + day - 719469
  end

  -- Milliseconds since 1970, of a time as others may write it: with an offset, or as seconds since then.
  local function ms_of_iso(text)
    local y, mo, d, h, mi, s, offset = string.match(text, '^(%d+)-(%d+)-(%d+)[T ](%d+):(%d+):(%d+%.?%d*)(.*)$')
    if not y then
      local seconds = tonumber(text)
      return seconds and floor(seconds * 1000 + 0.5)
    end
    local sign, hours, minutes = string.match(offset, '^([+-])(%d%d):?(%d%d)$')
    local ahead = sign and (tonumber(hours) * 60 + tonumber(minutes)) * (sign == '-' and -60 or 60) or 0
    local seconds = days_of(tonumber(y), tonumber(mo), tonumber(d)) * 86400 + tonumber(h) * 3600 + tonumber(mi) * 60
    return (seconds - ahead) * 1000 + floor(tonumber(s) * 1000 + 0.5)
  end

  local function iso_of_ms(ms)
    local days = floor(ms / 86400000)
    local year = floor((days + 0.5) / 365.2425) + 1970
    while days_of(year, 1, 1) > days do
      year = year - 1
    end
    while days_of(year + 1, 1, 1) <= days do
      year = year + 1
    end
    local month = 12
    while days_of(year, month, 1) > days do
      month = month - 1
    end
    local left = ms - days * 86400000
    return string.format('%04d-%02d-%02dT%02d:%02d:%06.3fZ', year, month, days - days_of(year, month, 1) + 1,
      floor(left / 3600000), floor(left / 60000) % 60, left % 60000 / 1000)
  end

  local function states_key(owner)
    return owner == '' and key('upstreams') or key('upstreams', owner)
  end

  local function gates_key(upstream, kind)
    local below = upstream.owner == '' and GATES or states_key(upstream.owner) .. ':'
    return below .. kind .. ':' .. upstream.name
  end

  local function breaker_key(upstream, what)
    return gates_key(upstream, 'circuit_breaker') .. ':' .. what
  end

  local function read_breaker(upstream)
    local breaker = upstream.gates.breaker
    local told = redis.call('MGET', breaker_key(upstream, 'failures'), breaker_key(upstream, 'degraded_until'))
    breaker.failures = tonumber(told[1] or 0) or 0
    local open_until = told[2] and ms_of_iso(told[2])
    if open_until then
      breaker.open_until = open_until
    elseif Breaker.is_open(breaker) then
      -- Somebody else closed it.
      breaker.open_until = nil
    end
    upstream.told = { breaker.failures, open_until }
  end

  local function write_breaker(upstream)
    local breaker, told = upstream.gates.breaker, upstream.told
    local open_until = Breaker.is_open(breaker) and breaker.open_until or nil
    if breaker.failures ~= told[1] then
      local lives = max(LIVES_IDLE, (open_until or now) - now)
      redis.call('SET', breaker_key(upstream, 'failures'), breaker.failures, 'PX', lives)
    end
    if open_until and open_until ~= told[2] then
      redis.call('SET', breaker_key(upstream, 'degraded_until'), iso_of_ms(open_until), 'PX', open_until - now)
    elseif told[2] and not open_until then
      redis.call('DEL', breaker_key(upstream, 'degraded_until'))
    end
  end

  local function limiter_key(upstream)
    return gates_key(upstream, 'rate_limiter')
  end

  local function read_limiter(upstream)
    local told = redis.call('HMGET', limiter_key(upstream), 'tokens', 'last_refill', 'remainder')
    local tokens, at = tonumber(told[1] or nil), tonumber(told[2] or nil)
    upstream.gates.bucket = nil
    if tokens and at then
      upstream.gates.bucket = {
        balance = floor(tokens * 1000000 + 0.5),
        at = floor(at * 1000 + 0.5),
        remainder = tonumber(told[3] or 0) or 0,
        closed_until = 0,
      }
    end
  end

  -- It lives until it is full for certain: one that was forgotten is a full one.
  local function write_limiter(upstream)
    local bucket, rule = upstream.gates.bucket, upstream.rule.bucket
    if not bucket then
      return
    end
    local name = limiter_key(upstream)
    redis.call('HSET', name, 'tokens', string.format('%.6f', bucket.balance / 1000000),
      'last_refill', string.format('%.3f', bucket.at / 1000), 'remainder', bucket.remainder)
    local fills_in = Bucket.time_to_gain(rule, rule.capacity - bucket.balance)
    redis.call('PEXPIRE', name, whole(min(max(LIVES_IDLE, 2 * fills_in), NEVER)))
  end

  local function read_upstream(name, owner)
    local raw, known = read_ruled('upstreams', name)
    if owner ~= '' then
      raw = redis.call('HGET', states_key(owner), name)
    end
    if not raw and not known then
      return false
    end
    local gates = raw and recall(known, raw) or Gates.new()
    local upstream = { name = name, owner = owner, known = known, raw = raw, gates = gates, rule = known and known.rule }
    if upstream.rule then
      if upstream.rule.bucket then
        read_limiter(upstream)
      end
      Gates.fit(upstream.gates, upstream.rule)
      if upstream.rule.breaker then
        read_breaker(upstream)
      end
    end
    return upstream
  end

  -- An upstream with the gates of its owner: of those who ask, if nobody else is named.
  function upstream_of(name, owner)
    owner = owner or OWNER
    local id = owner == '' and name or owner .. '/' .. name
    local found = upstreams[id]
    if found == nil then
      found = read_upstream(name, owner)
      upstreams[id] = found
      upstream_order[#upstream_order + 1] = found or nil
    end
    return found or nil
  end

  -- The same for those who will change it.
  function changed_upstream(name, owner)
    local upstream = upstream_of(name, owner)
    if upstream then
      upstream.changed = true
    end
    return upstream
  end

  local function write_upstream(upstream)
    local rule = upstream.rule
    if rule and rule.breaker then
      write_breaker(upstream)
    end
    if rule and rule.bucket then
      write_limiter(upstream)
    end
    local states, raw = states_key(upstream.owner), cmsgpack.pack(upstream.gates)
    redis.call('HSET', states, upstream.name, raw)
    if upstream.owner ~= '' then
      redis.call('PEXPIRE', states, LIVES_OWNED)
    end
    remember(upstream.known, raw, upstream.gates)
  end

  at_end[#at_end + 1] = function()
    for _, upstream in ipairs(upstream_order) do
      if upstream.changed then
        write_upstream(upstream)
      elseif upstream.rule and not upstream.rule.breaker then
        -- Nothing was changed but what is read anew each time.
        remember(upstream.known, upstream.raw, upstream.gates)
      end
    end
  end

  -- Why and until when an upstream takes no call; nothing if it does. One that the rules do not name takes none.
  function upstream_denies(name, slot_free_at)
    local upstream = upstream_of(name)
    if not upstream or not upstream.rule then
      return 'no_worker', NEVER
    end
    return Gates.denies(upstream.gates, upstream.rule, slot_free_at)
  end

  -- Takes what a call takes; returns what its report must name.
  function take_upstream(name, lease, expires)
    local upstream = changed_upstream(name)
    if upstream.rule then
      return Gates.take(upstream.gates, upstream.rule, lease, expires)
    end
    return 0
  end
end

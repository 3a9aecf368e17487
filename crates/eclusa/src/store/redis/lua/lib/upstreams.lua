-- Upstreams and their gates.
--
-- Breaker and limiter are kept where others look for them: `circuit_breaker:<u>:failures`, `…:degraded_until` and
-- `rate_limiter:<u>`. Their expiry only collects garbage: what is decided here is decided by what they say.

local upstream_of, changed_upstream, upstream_denies, take_upstream
do
  local LIVES_IDLE = 300000
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

  local function ms_of_iso(text)
    local y, mo, d, h, mi, s = string.match(text, '^(%d+)-(%d+)-(%d+)T(%d+):(%d+):(%d+%.?%d*)')
    if not y then
      return nil
    end
    local seconds = days_of(tonumber(y), tonumber(mo), tonumber(d)) * 86400 + tonumber(h) * 3600 + tonumber(mi) * 60
    return seconds * 1000 + floor(tonumber(s) * 1000 + 0.5)
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

  local function breaker_key(name, what)
    return GATES .. 'circuit_breaker:' .. name .. ':' .. what
  end

  local function read_breaker(upstream)
    local breaker = upstream.gates.breaker
    local told = redis.call('MGET', breaker_key(upstream.name, 'failures'), breaker_key(upstream.name, 'degraded_until'))
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
      redis.call('SET', breaker_key(upstream.name, 'failures'), breaker.failures, 'PX', lives)
    end
    if open_until and open_until ~= told[2] then
      redis.call('SET', breaker_key(upstream.name, 'degraded_until'), iso_of_ms(open_until), 'PX', open_until - now)
    elseif told[2] and not open_until then
      redis.call('DEL', breaker_key(upstream.name, 'degraded_until'))
    end
  end

  local function limiter_key(name)
    return GATES .. 'rate_limiter:' .. name
  end

  local function read_limiter(upstream)
    local told = redis.call('HMGET', limiter_key(upstream.name), 'tokens', 'last_refill', 'remainder')
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
    local name = limiter_key(upstream.name)
    redis.call('HSET', name, 'tokens', string.format('%.6f', bucket.balance / 1000000),
      'last_refill', string.format('%.3f', bucket.at / 1000), 'remainder', bucket.remainder)
    local fills_in = Bucket.time_to_gain(rule, rule.capacity - bucket.balance)
    redis.call('PEXPIRE', name, whole(min(max(LIVES_IDLE, 2 * fills_in), NEVER)))
  end

  local function read_upstream(name)
    local raw, known = read_ruled('upstreams', name)
    if not raw and not known then
      return false
    end
    local upstream = { name = name, known = known, raw = raw, gates = raw and recall(known, raw) or Gates.new(), rule = known and known.rule }
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

  function upstream_of(name)
    local found = upstreams[name]
    if found == nil then
      found = read_upstream(name)
      upstreams[name] = found
      upstream_order[#upstream_order + 1] = found or nil
    end
    return found or nil
  end

  -- The same for those who will change it.
  function changed_upstream(name)
    local upstream = upstream_of(name)
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
    local raw = cmsgpack.pack(upstream.gates)
    redis.call('HSET', key('upstreams'), upstream.name, raw)
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

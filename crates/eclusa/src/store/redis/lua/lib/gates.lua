-- The gates of one lane or upstream, asked together. The state has the shape of `Gates` in the core, the rule that of
-- `GateSpecs`.

local Gates, Breaker
do
  local ONE_TOKEN = 1000000
  local MINUTE = 60000
  local FORGET_ERRORS_AFTER = 600000
  local MAX_STARTS = 128

  Gates = {}

  function Gates.new()
    return {
      breaker = { failures = 0, generation = 0, probes = {}, opened = 0, half_opened = 0, closed = 0 },
      cooldown = { errors = 0, last_error = 0, hot_until = 0 },
      window = { starts = {} },
      starts = { minute = 0, current = 0, previous = 0 },
      closed_until = 0,
      in_flight = 0,
    }
  end

  -- Breaker: every opening and closing begins a new generation; late results of older ones do not count.

  Breaker = {}

  function Breaker.is_open(breaker)
    return breaker.open_until ~= nil and now < breaker.open_until
  end

  function Breaker.is_half_open(breaker)
    return breaker.open_until ~= nil and now >= breaker.open_until
  end

  local function drop_probes(breaker, goes)
    if #breaker.probes == 0 then
      return false
    end
    local kept = {}
    for _, probe in ipairs(breaker.probes) do
      if not goes(probe) then
        kept[#kept + 1] = probe
      end
    end
    local dropped = #kept < #breaker.probes
    breaker.probes = kept
    return dropped
  end

  -- Probes are leases as the core writes them: { epoch, number, nonce }.
  local function probe_of(lease)
    local number, epoch, nonce = struct.unpack('>I8I4I4', lease)
    return { epoch, number, nonce }
  end

  local function is_probe_of(probe, lease)
    return probe[1][2] == lease[2] and probe[1][1] == lease[1] and probe[1][3] == lease[3]
  end

  function Breaker.denies(breaker, rule)
    if Breaker.is_open(breaker) then
      return 'circuit_open', breaker.open_until
    end
    if Breaker.is_half_open(breaker) then
      local live, freed = 0, NEVER
      for _, probe in ipairs(breaker.probes) do
        if probe[2] > now then
          live, freed = live + 1, min(freed, probe[2])
        end
      end
      if live >= rule.probes then
        return 'circuit_open', freed
      end
    end
  end

  function Breaker.take(breaker, lease, expires)
    if not Breaker.is_half_open(breaker) then
      return
    end
    drop_probes(breaker, function(probe) return probe[2] <= now end)
    if #breaker.probes == 0 then
      breaker.half_opened = breaker.half_opened + 1
    end
    breaker.probes[#breaker.probes + 1] = { probe_of(lease), expires }
  end

  local function begin_generation(breaker)
    breaker.generation = (breaker.generation + 1) % 4294967296
    breaker.probes = {}
  end

  local function open_breaker(breaker, rule)
    breaker.open_until = after(now, rule.open_for)
    breaker.opened = breaker.opened + 1
    begin_generation(breaker)
  end

  local function close_breaker(breaker)
    breaker.open_until = nil
    breaker.closed = breaker.closed + 1
    begin_generation(breaker)
  end

  local function count_result(breaker, rule, was_probe, result)
    if result == 'Success' or result == 'Rejected' then
      breaker.failures = 0
      if was_probe then
        close_breaker(breaker)
      end
    elseif result == 'Throttled' then
      if was_probe then
        open_breaker(breaker, rule)
      end
    elseif result == 'Failed' or result == 'TimedOut' then
      breaker.failures = breaker.failures + 1
      if was_probe or breaker.failures >= rule.failures then
        open_breaker(breaker, rule)
      end
    end
  end

  function Breaker.report(breaker, rule, lease, generation, result)
    local id = probe_of(lease)
    local was_probe = drop_probes(breaker, function(probe) return is_probe_of(probe, id) end)
    if generation == breaker.generation then
      count_result(breaker, rule, was_probe, result)
    end
  end

  function Breaker.record(breaker, rule, result)
    if Breaker.is_open(breaker) and result ~= 'Success' then
      return
    end
    count_result(breaker, rule, breaker.open_until ~= nil, result)
  end

  function Breaker.reset(breaker)
    breaker.failures = 0
    if breaker.open_until then
      close_breaker(breaker)
    end
  end

  -- Window: at most so many starts in any stretch of a span.

  local function count_starts(window, rule)
    local count, oldest = 0, nil
    for _, start in ipairs(window.starts) do
      if after(start[1], rule.span) > now then
        count, oldest = count + start[2], oldest or start[1]
      end
    end
    return count, oldest
  end

  local function window_denies(window, rule)
    local count, oldest = count_starts(window, rule)
    if count >= rule.limit then
      return 'window', after(oldest or now, rule.span)
    end
  end

  local function take_window(window, rule)
    local starts = window.starts
    while starts[1] and after(starts[1][1], rule.span) <= now do
      table.remove(starts, 1)
    end
    local grain = rule.limit <= MAX_STARTS and 1 or math.ceil(rule.span / MAX_STARTS)
    local at = math.ceil(now / grain) * grain
    local last = starts[#starts]
    if last and last[1] >= at then
      last[2] = last[2] + 1
    else
      starts[#starts + 1] = { at, 1 }
    end
  end

  -- Pace: one start per interval.

  local function pace_interval(pace)
    return math.ceil(pace.interval_us / 1000)
  end

  local function adapt_pace(pace, rule, result)
    local interval = pace.interval_us
    if result == 'Success' then
      interval = floor(interval / 10) * 9 + floor(interval % 10 * 9 / 10)
    elseif result == 'Failed' or result == 'TimedOut' then
      interval = floor(interval * 3 / 2)
    elseif result == 'Throttled' then
      interval = interval * 2
    end
    pace.interval_us = min(max(interval, rule.min * 1000), rule.max * 1000)
  end

  local function adapt_cooldown(gates, rule, result)
    local cooldown = gates.cooldown
    if result == 'Success' or result == 'Rejected' then
      gates.cooldown = { errors = 0, last_error = 0, hot_until = 0 }
    elseif result == 'Throttled' or result == 'Failed' or result == 'TimedOut' then
      if now - cooldown.last_error >= FORGET_ERRORS_AFTER then
        cooldown.errors = 0
      end
      cooldown.errors, cooldown.last_error = cooldown.errors + 1, now
      cooldown.hot_until = max(cooldown.hot_until, after(now, rule[min(cooldown.errors, #rule)]))
    end
  end

  local function adapt(gates, rule, result)
    if rule.cooldown then
      adapt_cooldown(gates, rule.cooldown, result)
    end
    if rule.pace and gates.pace then
      adapt_pace(gates.pace, rule.pace, result)
    end
  end

  local function count_start(starts)
    local minute = floor(now / MINUTE)
    local passed = minute - starts.minute
    if passed > 0 then
      starts.previous = passed == 1 and starts.current or 0
      starts.minute, starts.current = minute, 0
    end
    starts.current = starts.current + 1
  end

  -- The later of two denials; the second where both end together.
  local function later(why, until_when, reason, at)
    if reason and at >= until_when then
      return reason, at
    end
    return why, until_when
  end

  -- The gate that opens last among those that deny a call: why and until when. Nothing if all admit it.
  function Gates.denies(gates, rule, slot_free_at)
    local why, until_when = nil, -1
    if gates.closed_until > now then
      why, until_when = 'upstream_retry_after', gates.closed_until
    end
    if rule.breaker then
      why, until_when = later(why, until_when, Breaker.denies(gates.breaker, rule.breaker))
    end
    if rule.cooldown and gates.cooldown.hot_until > now then
      why, until_when = later(why, until_when, 'cooldown', gates.cooldown.hot_until)
    end
    if rule.slots and gates.in_flight >= rule.slots then
      why, until_when = later(why, until_when, 'concurrency', (slot_free_at()))
    end
    if rule.window then
      why, until_when = later(why, until_when, window_denies(gates.window, rule.window))
    end
    if rule.bucket and gates.bucket then
      why, until_when = later(why, until_when, Bucket.denies(gates.bucket, rule.bucket, ONE_TOKEN))
    end
    if rule.pace and gates.pace and gates.pace.next_at > now then
      why, until_when = later(why, until_when, 'pace', gates.pace.next_at)
    end
    if why then
      return why, until_when
    end
  end

  -- Takes what one call takes; its report must name the generation that this returns.
  function Gates.take(gates, rule, lease, expires)
    gates.in_flight = gates.in_flight + 1
    count_start(gates.starts)
    if rule.breaker then
      Breaker.take(gates.breaker, lease, expires)
    end
    if rule.window then
      take_window(gates.window, rule.window)
    end
    if rule.bucket then
      gates.bucket = gates.bucket or Bucket.full(rule.bucket)
      Bucket.take(gates.bucket, rule.bucket, ONE_TOKEN)
    end
    if rule.pace then
      gates.pace = gates.pace or { interval_us = rule.pace.initial * 1000, next_at = 0 }
      gates.pace.next_at = max(gates.pace.next_at, after(now, pace_interval(gates.pace)))
    end
    return gates.breaker.generation
  end

  -- Gives back the token of a call that was never sent.
  function Gates.give_back(gates, rule)
    if rule.bucket and gates.bucket then
      Bucket.settle(gates.bucket, rule.bucket, ONE_TOKEN, 0)
    end
  end

  function Gates.report(gates, rule, lease, generation, result)
    if rule.breaker then
      Breaker.report(gates.breaker, rule.breaker, lease, generation, result)
    end
    if result == 'NotSent' then
      Gates.give_back(gates, rule)
    end
    adapt(gates, rule, result)
  end

  -- Counts what a caller without a lease tells.
  function Gates.record(gates, rule, result)
    if rule.breaker then
      Breaker.record(gates.breaker, rule.breaker, result)
    end
    adapt(gates, rule, result)
  end

  function Gates.leave(gates)
    gates.in_flight = max(gates.in_flight - 1, 0)
  end

  function Gates.extend(gates, lease, expires)
    local id = probe_of(lease)
    for _, probe in ipairs(gates.breaker.probes) do
      if is_probe_of(probe, id) then
        probe[2] = expires
      end
    end
  end

  function Gates.close(gates, until_when)
    gates.closed_until = max(gates.closed_until, until_when)
  end

  function Gates.reset(gates)
    Breaker.reset(gates.breaker)
    gates.cooldown = { errors = 0, last_error = 0, hot_until = 0 }
    gates.closed_until = 0
  end

  -- Closes the breaker without a probe if its open window is over.
  function Gates.recover(gates)
    if Breaker.is_half_open(gates.breaker) then
      Breaker.reset(gates.breaker)
    end
  end

  -- The least time between two starts that pace, window and bucket allow in the long run, in microseconds.
  function Gates.interval_us(gates, rule)
    local pace = rule.pace and gates.pace and pace_interval(gates.pace) * 1000 or 0
    local window = rule.window and floor(60000000 / rule.window.limit) or 0
    local bucket = rule.bucket and Bucket.time_to_gain(rule.bucket, ONE_TOKEN) * 1000 or 0
    return max(pace, window, bucket)
  end

  -- Fits the state to the rules of now.
  function Gates.fit(gates, rule)
    if not rule.bucket then
      gates.bucket = nil
    elseif gates.bucket then
      Bucket.fit(gates.bucket, rule.bucket)
    end
    if not rule.pace then
      gates.pace = nil
    elseif gates.pace then
      adapt_pace(gates.pace, rule.pace, 'NotSent')
    end
  end
end

-- Scoped buckets, found by key, and the lines that wait for them.
--
-- A line denied by its own bucket is parked there. When the bucket refills, only as many lines are woken as its balance
-- can serve, so that very many lines waiting for one bucket cost one look per token.

local buckets, idle_buckets, find_or_create_bucket, add_bucket_user, remove_bucket_user, take_bucket, settle_bucket,
  holds_at, denied_hold, park, wake_parked, next_wake, forget_idle_bucket
do
  local function read_bucket(raw, name)
    local capacity, refill_micro, refill_ms, balance, at, remainder, closed_until, users, wakes_at, forget_at =
      cmsgpack.unpack(raw)
    return { name = name, rule = { capacity = capacity, refill_micro = refill_micro, refill_ms = refill_ms },
      balance = balance, at = at, remainder = remainder, closed_until = closed_until, users = users,
      wakes_at = wakes_at, forget_at = forget_at }
  end

  local function pack_bucket(bucket)
    local rule = bucket.rule
    return cmsgpack.pack(rule.capacity, rule.refill_micro, rule.refill_ms, bucket.balance, bucket.at, bucket.remainder,
      bucket.closed_until, bucket.users, bucket.wakes_at, bucket.forget_at)
  end

  buckets = basin_records('buckets', read_bucket, pack_bucket)
  local bucket_wakes = basin_set('bucket-wakes')
  idle_buckets = basin_set('bucket-idle')

  local function parked_at(bucket)
    return set(key('parked', bucket.name))
  end

  -- Those of the parked that have other upstreams to go to, by when they look there.
  local function looking_at(bucket)
    return set(key('looking', bucket.name))
  end

  local function forget_bucket_at(bucket, at)
    bucket.forget_at = at
    idle_buckets:add(numbered(0, bucket.name), at)
  end

  local function wake_bucket_at(bucket, at)
    buckets:change(bucket.name)
    bucket.wakes_at = at
    bucket_wakes:add(numbered(0, bucket.name), at)
  end

  -- The bucket with `name` under the rule that is in force now.
  function find_or_create_bucket(name, capacity, refill_micro, refill_ms)
    local rule = { capacity = capacity, refill_micro = refill_micro, refill_ms = refill_ms }
    local bucket = buckets:get(name)
    if not bucket then
      bucket = Bucket.full(rule)
      bucket.name, bucket.rule, bucket.users = name, rule, 0
      buckets:put(name, bucket)
      forget_bucket_at(bucket, 0)
      return bucket
    end
    local old = bucket.rule
    if old.capacity ~= capacity or old.refill_micro ~= refill_micro or old.refill_ms ~= refill_ms then
      buckets:change(name)
      -- What was gained until now was gained under the old rule.
      Bucket.refill(bucket, old)
      bucket.rule = rule
      Bucket.fit(bucket, rule)
    end
    return bucket
  end

  function add_bucket_user(bucket)
    buckets:change(bucket.name)
    bucket.users = bucket.users + 1
  end

  function remove_bucket_user(bucket)
    buckets:change(bucket.name)
    bucket.users = bucket.users - 1
    if bucket.users == 0 then
      local _, full_at = Bucket.denies(bucket, bucket.rule, bucket.rule.capacity)
      forget_bucket_at(bucket, full_at or now)
    end
  end

  function take_bucket(name, tokens)
    local bucket = buckets:change(name)
    bucket.users = bucket.users + 1
    Bucket.take(bucket, bucket.rule, tokens)
  end

  function settle_bucket(name, hold, cost)
    local bucket = buckets:change(name)
    Bucket.settle(bucket, bucket.rule, hold, cost)
    if cost < hold and parked_at(bucket):first() then
      wake_bucket_at(bucket, now)
    end
    remove_bucket_user(bucket)
  end

  -- Why and until when `tokens` may not be taken by one of this rank: too few, or one before it waits for them.
  local function bucket_denies(bucket, tokens, rank)
    local reason, at = Bucket.denies(bucket, bucket.rule, tokens)
    if reason then
      return reason, at
    end
    local _, first = parked_at(bucket):first()
    if first and first < rank then
      return 'rate_limit', bucket.wakes_at or now
    end
  end

  -- Holds are packed as upstream, bucket, tokens, …
  function holds_at(holds, upstream)
    local own, all = {}, { cmsgpack.unpack(holds) }
    for i = 1, #all, 3 do
      if all[i] == upstream then
        own[#own + 1] = { upstream = upstream, bucket = all[i + 1], tokens = all[i + 2] }
      end
    end
    return own
  end

  -- The hold at `upstream` whose bucket denies it longest, with the reason and the time.
  function denied_hold(holds, upstream, rank)
    if not holds then
      return nil
    end
    local own = holds_at(holds, upstream)
    local denied, why, until_when = nil, nil, -1
    for _, hold in ipairs(own) do
      local tokens = 0
      for _, other in ipairs(own) do
        tokens = tokens + (other.bucket == hold.bucket and other.tokens or 0)
      end
      local reason, at = bucket_denies(buckets:get(hold.bucket), tokens, rank)
      if reason and at >= until_when then
        denied, why, until_when = hold, reason, at
      end
    end
    return denied, why, until_when
  end

  local function parked_member(rank, lane, line)
    return numbered(rank, lane.name .. '\n' .. line.id)
  end

  -- Takes a line out of the running; its tenant keeps its place.
  function park(lane, line, hold, until_when)
    local stands = stands_of(lane)
    local stand = stands:change(line.id)
    if not stand then
      basin.tickets = basin.tickets + 1
      stand = stands:put(line.id, { ticket = basin.tickets })
    end
    stand.bucket, stand.hold = hold.bucket, hold.tokens
    local has_choice = #upstreams_in(lane.groups[line.group]) > 1
    stand.look_at = has_choice and until_when or nil
    local bucket, rank = buckets:get(hold.bucket), rank_of(lane, line)
    parked_at(bucket):add(parked_member(rank, lane, line), rank)
    if stand.look_at then
      looking_at(bucket):add(parked_member(rank, lane, line), stand.look_at)
    end
    if not bucket.wakes_at or until_when < bucket.wakes_at then
      wake_bucket_at(bucket, until_when)
    end
    move_head(lane, line, true)
  end

  local function leave_bucket(bucket, lane, line, stand)
    local member = parked_member(rank_of(lane, line), lane, line)
    parked_at(bucket):remove(member)
    if stand.look_at then
      looking_at(bucket):remove(member)
    end
    stands_of(lane):change(line.id)
    stand.bucket, stand.look_at = nil, nil
  end

  -- With the last line goes the wake-up: the bucket may be forgotten next.
  function unpark_line(lane, line)
    local stand = stand_of(lane, line)
    local bucket = buckets:change(stand.bucket)
    leave_bucket(bucket, lane, line, stand)
    if not parked_at(bucket):first() and bucket.wakes_at then
      bucket.wakes_at = nil
      bucket_wakes:remove(numbered(0, bucket.name))
    end
  end

  -- Puts a parked line back into the running; returns what it wants of the bucket.
  local function wake_line(bucket, member)
    local lane, id = string.match(string.sub(member, 9), '^([^\n]*)\n(.*)$')
    lane = lane_of(lane)
    local line = line_of(id)
    local stand = stand_of(lane, line)
    leave_bucket(bucket, lane, line, stand)
    move_head(lane, line, false)
    return stand.hold
  end

  local function hold_of(member)
    local lane, id = string.match(string.sub(member, 9), '^([^\n]*)\n(.*)$')
    return stand_of(lane_of(lane), line_of(id)).hold
  end

  -- Wakes the lines of one bucket whose time has come; returns how many.
  local function wake_bucket(bucket)
    buckets:change(bucket.name)
    bucket.wakes_at = nil
    Bucket.refill(bucket, bucket.rule)
    local left, woken = bucket.balance, 0
    local parked, looking = parked_at(bucket), looking_at(bucket)
    while bucket.closed_until <= now and woken < MAX_BATCH do
      local member = parked:first()
      if not member or (woken > 0 and hold_of(member) > left) then
        break
      end
      left = left - wake_line(bucket, member)
      woken = woken + 1
    end
    -- These do not wait for the bucket alone, so they need not wait for those before them.
    while woken < MAX_BATCH do
      local member, at = looking:first()
      if not member or at > now then
        break
      end
      wake_line(bucket, member)
      woken = woken + 1
    end
    local first = parked:first()
    local _, next_at = looking:first()
    if first then
      local hold = hold_of(first)
      local wait = hold <= left and 0 or max(Bucket.time_to_gain(bucket.rule, hold), 1)
      next_at = min(next_at or NEVER, max(bucket.closed_until, after(now, wait)))
    end
    if next_at then
      wake_bucket_at(bucket, next_at)
    end
    return woken
  end

  -- Puts lines back into the running whose bucket has refilled.
  function wake_parked()
    local looks = 0
    while looks < MAX_LOOKS do
      local member, at = bucket_wakes:first()
      if not member or at > now then
        return
      end
      bucket_wakes:remove(member)
      looks = looks + max(wake_bucket(buckets:get(string.sub(member, 9))), 1)
    end
  end

  function next_wake()
    local _, at = bucket_wakes:first()
    return at or NEVER
  end

  -- Looks at one bucket that was idle: full and unused, it is forgotten. Says whether there was one to look at.
  function forget_idle_bucket()
    local member, at = idle_buckets:first()
    if not member or at > now then
      return false
    end
    idle_buckets:remove(member)
    local bucket = buckets:change(string.sub(member, 9))
    bucket.forget_at = nil
    if bucket.users > 0 then
      return true
    end
    Bucket.refill(bucket, bucket.rule)
    if bucket.closed_until <= now and bucket.balance >= bucket.rule.capacity then
      buckets:remove(bucket.name)
    else
      forget_bucket_at(bucket, after(now, 1000))
    end
    return true
  end
end

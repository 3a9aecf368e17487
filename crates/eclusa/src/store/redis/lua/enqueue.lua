-- enqueue: new jobs into their lanes, evicting less urgent ones where a lane is full. Each stands for itself.
--   KEYS[1], ARGV[1..3]: see lib/base.lua; ARGV[4]: jobs { id, lane, tenant, quota, level, payload, key, fingerprint, cache_key, ttl, delay, chain, holds, replay_of }
--   returns: { jobs = { how, job?, place?, answer?, stale?, left?, overdue?, told: how many had ended then }, ended }

local BELOW = { { LOW, NORMAL }, { LOW }, {} }

-- The answer for a job that is here already.
local function known(lane, new)
  if jobs:get(new.id) then
    return { how = 'existing', job = new.id }
  end
  local entry = new.key and known_keys(lane):get(new.key)
  if entry then
    return { how = entry.fingerprint == new.fingerprint and 'existing' or 'conflict', job = entry.job }
  end
end

-- The answer for a new request that needs no job. One that was asked to start later wants a call of then.
local function answer_at_intake(lane, chain, new)
  local entry = new.cache_key and new.delay == 0 and entry_of(lane, new.cache_key)
  if not entry then
    return nil
  end
  local rule = lane.rule.cache
  local fresh = now < fresh_until(rule, entry)
  if not fresh and not (now < usable_until(rule, entry) and all_open(lane, chain)) then
    return nil
  end
  local totals, counter = lane.totals, fresh and 'cache_hits' or 'fallbacks'
  totals.answered_at_intake, totals[counter] = totals.answered_at_intake + 1, totals[counter] + 1
  return { how = 'cached', answer = entry.answer, stale = not fresh, left = max(fresh_until(rule, entry) - now, 0),
    overdue = max(now - fresh_until(rule, entry), 0) }
end

-- Whether the job fits, after evicting less urgent ones if need be.
local function make_room(lane, new)
  local capacity, bytes = lane.rule.capacity, #new.payload
  local below = BELOW[new.level]
  local evictable, evictable_bytes = 0, 0
  for _, level in ipairs(below) do
    evictable = evictable + lane.levels[level].evictable
    evictable_bytes = evictable_bytes + lane.levels[level].evictable_bytes
  end
  if evictable < lane.waiting + 1 - capacity.jobs or evictable_bytes < lane.waiting_bytes + bytes - capacity.bytes then
    return false
  end
  while lane.waiting >= capacity.jobs or lane.waiting_bytes + bytes > capacity.bytes do
    local job = nil
    for _, level in ipairs(below) do
      job = job or victim(lane, level)
    end
    if not job then
      return false
    end
    drop_job(lane, job, 'preempted')
  end
  return true
end

local function refuse(lane, new)
  count_end(lane, 'queue_full')
  ended[#ended + 1] = { job = new.id, lane = lane.name, tenant = new.tenant, level = new.level, attempts = 0, created = now,
    how = 'queue_full' }
  return { how = 'queue_full' }
end

-- Makes the buckets known that a job will take from; what it keeps of that is upstream, bucket, tokens, …
local function resolve_holds(holds)
  if not holds then
    return nil
  end
  local packed = ''
  for _, hold in ipairs(holds) do
    add_bucket_user(find_or_create_bucket(hold[2], hold[4], hold[5], hold[6]))
    packed = packed .. cmsgpack.pack(hold[1], hold[2], hold[3])
  end
  return packed
end

local function accept(lane, chain, new)
  hold_tenant(lane, find_or_create_tenant(lane, new.tenant, new.quota))
  lane.totals.accepted = lane.totals.accepted + 1
  local job = {
    id = new.id, lane = lane.name, tenant = new.tenant, level = new.level, seq = take_seq(lane), created = now,
    expires = new.ttl and after(now, new.ttl) or NEVER, chain = chain, bytes = #new.payload, phase = FINISHED, tried = 0,
    attempts = 0, lost = 0, key = new.key, cache_key = cache_rule(lane) and new.cache_key or nil, replay_of = new.replay_of,
  }
  if new.key then
    keep_key(lane, new.key, new.id, new.fingerprint)
  end
  job.holds = resolve_holds(new.holds)
  jobs:put(job.id, job)
  keep_payload(job, new.payload)
  wait(lane, job, new.delay > 0 and after(now, new.delay) or nil)
  return { how = 'accepted', place = place_of(lane, job) }
end

-- A replay stays with its letter until it succeeds; while it is under way another one gives the same job back.
local function replayed(lane, new)
  local letter = letters_of(lane):get(new.replay_of)
  if not letter then
    return { how = 'unknown' }
  end
  if letter.replay then
    return { how = 'existing', job = letter.replay }
  end
  for _, hold in ipairs(new.holds or NOTHING) do
    local bucket = buckets:get(hold[2])
    if bucket then
      hold[4], hold[5], hold[6] = bucket.rule.capacity, bucket.rule.refill_micro, bucket.rule.refill_ms
    end
    hold[3] = min(hold[3], hold[4])
  end
end

local function enqueue(new)
  local lane = lane_of(new.lane)
  local answer = new.replay_of and replayed(lane, new)
  if answer then
    return answer
  end
  local before = known(lane, new)
  if before then
    before.how = new.replay_of and 'taken' or before.how
    return before
  end
  local chain = new.chain and group_of(lane, new.chain) or lane.default_chain
  answer = answer_at_intake(lane, chain, new)
  if answer then
    return answer
  end
  if not make_room(lane, new) then
    return refuse(lane, new)
  end
  if new.replay_of then
    letters_of(lane):change(new.replay_of).replay = new.id
  end
  return accept(lane, chain, new)
end

function verbs.enqueue(question)
  local asked = cmsgpack.unpack(question)
  local ids, tenants, keys = {}, {}, {}
  for i, new in ipairs(asked) do
    local lane = lane_of(new.lane)
    if not lane or not lane.rule then
      return redis.error_reply('NORULES ' .. new.lane)
    end
    ids[i] = new.id
    tenants[lane] = tenants[lane] or {}
    table.insert(tenants[lane], new.tenant)
    keys[lane] = keys[lane] or {}
    table.insert(keys[lane], new.key)
  end
  jobs:fetch(ids)
  for lane, names in pairs(tenants) do
    tenants_of(lane):fetch(names)
    known_keys(lane):fetch(keys[lane])
  end

  local answers, arrived = {}, {}
  for i, new in ipairs(asked) do
    answers[i] = enqueue(new)
    answers[i].told = #ended
    if answers[i].how == 'accepted' then
      arrived[new.lane] = true
    end
  end

  write_all()
  keep_clock()
  publish_ended()
  publish_arrivals(arrived)
  return cmsgpack.pack({ jobs = answers, ended = ended })
end

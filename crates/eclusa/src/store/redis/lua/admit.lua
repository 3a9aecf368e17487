-- admit: calls without a job, now or not at all, each for itself. Takes from all gates of the lane, all gates of the first
-- upstream that admits it and all of its buckets, or from none.
--   KEYS[1], ARGV[1..3]: see lib/base.lua; ARGV[4]: calls, each packed: lane?, chain { name, … }, holds { { upstream, bucket, tokens, capacity, refill_micro, refill_ms }, … },
--     lease, nonce; many are the same
--   returns: { calls = each packed: { lease?, upstream?, expires?, reason?, at? }, ended, now }

-- It stands behind nobody.
local FIRST = 0
local NOT_TOLD = { result = 'Unknown' }

local function own_holds(holds, upstream)
  if #holds == 0 then
    return nil
  end
  local packed = ''
  for _, hold in ipairs(holds) do
    if hold[1] == upstream then
      find_or_create_bucket(hold[2], hold[4], hold[5], hold[6])
      packed = packed .. cmsgpack.pack(hold[1], hold[2], hold[3])
    end
  end
  return packed ~= '' and packed or nil
end

local function begin(lane, upstream, packed, lease_ms, nonce)
  local taken = nil
  if packed then
    taken = {}
    for _, hold in ipairs(holds_at(packed, upstream)) do
      take_bucket(hold.bucket, hold.tokens)
      taken[#taken + 1] = hold.bucket
      taken[#taken + 1] = hold.tokens
    end
  end
  local id = lease_ms > 0 and issue_lease(nonce) or struct.pack('>I8I4I4', 0, 0, nonce)
  local expires = after(now, lease_ms)
  if lane then
    take_lane(lane, id, expires)
  end
  local generation = take_upstream(upstream, id, expires)
  local lease = { use = 'call', lane = lane and lane.name, upstream = upstream, generation = generation, holds = taken,
    expires = expires, owner = OWNER }
  if lease_ms > 0 then
    put_lease(id, lease)
  else
    leave(id, lease, NOT_TOLD)
  end
  return { lease = id, upstream = upstream, expires = expires }
end

local function admit(lane_name, chain, holds, lease_ms, nonce)
  local lane = lane_name and lane_of(lane_name)
  if lane then
    local reason, at = lane_denies(lane, next_lease_end)
    if lane.paused then
      reason, at = 'paused', NEVER
    end
    if reason then
      return { reason = reason, at = at }
    end
  end
  local first, why, earliest = nil, 'no_worker', NEVER
  for _, name in ipairs(chain) do
    local reason, at = upstream_denies(name, next_lease_end)
    if not reason then
      local packed = own_holds(holds, name)
      local _, scoped, scoped_until = denied_hold(packed, name, FIRST)
      if not scoped then
        return begin(lane, name, packed, lease_ms, nonce)
      end
      reason, at = scoped, scoped_until
    end
    if not first or at < earliest then
      first, why, earliest = name, reason, at
    end
  end
  return { upstream = first, reason = why, at = earliest }
end

-- How many of `count` calls get through that equal one which did, and that nobody will tell of either.
local function admit_more(name, lease, count)
  local upstream = changed_upstream(name)
  local gates, rule = upstream.gates, upstream.rule
  for more = 1, count do
    if Gates.denies(gates, rule, next_lease_end) then
      return more - 1
    end
    Gates.take(gates, rule, lease, now)
    Gates.leave(gates)
  end
  return count
end

local function can_be_counted(asked)
  local lane_name, _, holds, lease_ms = unpack(asked, 1, 4)
  return not lane_name and #holds == 0 and lease_ms == 0
end

-- The answers to `count` equal calls, from `first` on.
local function admit_equal(asked, first, count, answers)
  local done = 0
  while done < count do
    local answer, same = admit(unpack(asked, 1, 5)), 1
    if can_be_counted(asked) then
      -- What is denied once is denied to all of them.
      same = answer.reason and count - done or 1 + admit_more(answer.upstream, answer.lease, count - done - 1)
    end
    answer = cmsgpack.pack(answer)
    for i = first + done, first + done + same - 1 do
      answers[i] = answer
    end
    done = done + same
  end
end

-- Who asks knows lane and upstreams by their rules, so a server without them has lost them.
local function unknown(lane_name, chain)
  local lane = lane_name and lane_of(lane_name)
  if lane_name and not (lane and lane.rule) then
    return lane_name
  end
  for _, name in ipairs(chain) do
    local upstream = upstream_of(name)
    if not (upstream and upstream.rule) then
      return name
    end
  end
end

function verbs.admit(question)
  local calls, read, answers = cmsgpack.unpack(question), {}, {}
  for _, packed in ipairs(calls) do
    if not read[packed] then
      local asked = { cmsgpack.unpack(packed) }
      local name = unknown(asked[1], asked[2])
      if name then
        return redis.error_reply('NORULES ' .. name)
      end
      read[packed] = asked
    end
  end
  take_up_lost()
  local first = 1
  for i, packed in ipairs(calls) do
    if packed ~= calls[i + 1] then
      admit_equal(read[packed], first, i - first + 1, answers)
      first = i + 1
    end
  end

  write_all()
  keep_clock()
  publish_ended()
  return cmsgpack.pack({ calls = answers, ended = ended, now = now })
end

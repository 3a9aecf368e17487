-- admit: calls without a job, now or not at all, each for itself. Takes from all gates of the lane, all gates of the first
-- upstream that admits it and all of its buckets, or from none.
--   KEYS[1], ARGV[1..3]: see lib/base.lua; ARGV[4]: calls, each packed: lane?, chain { name, … }, holds { { upstream, bucket, tokens, capacity, refill_micro, refill_ms }, … },
--     lease, nonce; many are the same
--   returns: { calls = { lease?, upstream?, expires?, reason?, at? }, ended, now }

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
  local id, expires = issue_lease(nonce), after(now, lease_ms)
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
  for i, packed in ipairs(calls) do
    answers[i] = admit(unpack(read[packed], 1, 5))
  end

  write_all()
  keep_clock()
  publish_ended()
  return cmsgpack.pack({ calls = answers, ended = ended, now = now })
end

-- admit: a call without a job, now or not at all. Takes from all gates of the lane, all gates of the first upstream that
-- admits it and all of its buckets, or from none.
--   question: lane?, chain { name, … }, holds { { upstream, bucket, tokens, capacity, refill_micro, refill_ms }, … }, lease, nonce
--   answer: { lease?, upstream?, expires?, reason?, at?, ended, now }

local lane_name, chain, holds, lease_ms, nonce = cmsgpack.unpack(ARGV[4])
take_up_lost()
local lane = lane_name and lane_of(lane_name)
-- It stands behind nobody.
local FIRST = 0

local function own_holds(upstream)
  local packed = ''
  for _, hold in ipairs(holds) do
    if hold[1] == upstream then
      find_or_create_bucket(hold[2], hold[4], hold[5], hold[6])
      packed = packed .. cmsgpack.pack(hold[1], hold[2], hold[3])
    end
  end
  return packed ~= '' and packed or nil
end

local function begin(upstream, packed)
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
  put_lease(id, { use = 'call', lane = lane_name, upstream = upstream, generation = generation, holds = taken,
    expires = expires })
  return { lease = id, upstream = upstream, expires = expires }
end

local function admit()
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
      local packed = own_holds(name)
      local _, scoped, scoped_until = denied_hold(packed, name, FIRST)
      if not scoped then
        return begin(name, packed)
      end
      reason, at = scoped, scoped_until
    end
    if not first or at < earliest then
      first, why, earliest = name, reason, at
    end
  end
  return { upstream = first, reason = why, at = earliest }
end

local answer = admit()
answer.ended, answer.now = ended, now
write_all()
keep_clock()
publish_ended()
return cmsgpack.pack(answer)

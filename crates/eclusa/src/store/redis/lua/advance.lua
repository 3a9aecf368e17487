-- advance: goes on to the next upstream of a job's chain that admits it, under the same lease.
--   KEYS[1], ARGV[1..3]: see lib/base.lua; ARGV[4]: { lease, upstream, result, costs, close_until, close_bucket, failure }
--   returns: { how = to | waits | exhausted | stale, upstream?, reason?, at? }

-- Of one call.
local asked, lease

-- Gives back what the failed call held and remembers that this upstream was tried.
local function leave_failed(lane, job)
  leave_upstream(asked.lease, lease, asked)
  leases:change(asked.lease)
  lease.upstream, lease.holds = nil, nil
  for place, name in ipairs(upstreams_in(lane.groups[job.chain])) do
    if name == asked.upstream then
      job.tried = bit.bor(job.tried, bit.lshift(1, place - 1))
    end
  end
  fail_attempt(job, asked.failure)
end

local function go_on(lane, job)
  if #untried(lane, job) == 0 or is_expired(job) then
    return { how = 'exhausted' }
  end
  local upstream, why, until_when = first_admitting(lane, job, job.level * 2 ^ 48)
  remove_lease(asked.lease)
  if upstream then
    enter_upstream(job, asked.lease, lease.lane, upstream, lease.expires)
    return { how = 'to', upstream = upstream }
  end
  leave_lane(lease, 'Success')
  stop_processing(lane, job)
  note(job, EVENT.WAITS_FOR_REST)
  wait(lane, job, nil)
  give_way_after(lane, job)
  return { how = 'waits', reason = why, at = until_when }
end

local function advance()
  if not lease or lease.use ~= 'job' then
    return { how = 'stale' }
  end
  if not lease.upstream then
    return { how = 'exhausted' }
  end
  if lease.upstream ~= asked.upstream then
    -- Asked again: the answer was lost.
    return { how = 'to', upstream = lease.upstream }
  end
  local job = jobs:change(lease.job)
  local lane = lane_of(job.lane)
  leave_failed(lane, job)
  return go_on(lane, job)
end

function verbs.advance(question)
  asked = cmsgpack.unpack(question)
  lease = leases:get(asked.lease)
  local answer = advance()
  write_all()
  keep_clock()
  return cmsgpack.pack(answer)
end

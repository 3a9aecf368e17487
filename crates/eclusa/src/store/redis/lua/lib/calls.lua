-- What a call takes from the gates and gives back to them.

local tell_gates, settle_holds, leave_upstream, leave_lane, leave, take_lane, enter_upstream, first_admitting
do
  -- Tells the gates what a call told: { result, costs = { bucket, tokens, … }, close_until, close_bucket }.
  function tell_gates(id, lease, report)
    if not lease.upstream then
      return
    end
    local upstream = changed_upstream(lease.upstream, lease.owner)
    if report.close_until then
      local bucket = report.close_bucket and buckets:change(report.close_bucket)
      if bucket then
        bucket.closed_until = max(bucket.closed_until, report.close_until)
      else
        Gates.close(upstream.gates, report.close_until)
      end
    end
    if upstream.rule then
      Gates.report(upstream.gates, upstream.rule, id, lease.generation, report.result)
    end
  end

  local function cost_of(bucket, hold, report)
    if report.result == 'NotSent' then
      return 0
    end
    for i = 1, #(report.costs or NOTHING), 2 do
      if report.costs[i] == bucket then
        return max(report.costs[i + 1], 0)
      end
    end
    return hold
  end

  function settle_holds(lease, report)
    local holds = lease.holds or NOTHING
    for i = 1, #holds, 2 do
      settle_bucket(holds[i], holds[i + 1], cost_of(holds[i], holds[i + 1], report))
    end
  end

  function leave_upstream(id, lease, report)
    tell_gates(id, lease, report)
    settle_holds(lease, report)
    if lease.upstream then
      Gates.leave(changed_upstream(lease.upstream, lease.owner).gates)
    end
  end

  -- Gives back the lane's slot, and its token where it is certain that nothing was sent for it.
  function leave_lane(lease, result)
    local lane = lease.lane and lane_of(lease.lane)
    if not lane then
      return
    end
    local first = lease.use == 'call' or (lease.use == 'job' and jobs:get(lease.job).tried == 0)
    Gates.leave(lane.gates)
    if result == 'NotSent' and first and lane.rule then
      Gates.give_back(lane.gates, lane.rule.gates)
    end
  end

  -- Gives back everything a lease held.
  function leave(id, lease, report)
    leave_upstream(id, lease, report)
    leave_lane(lease, report.result)
  end

  function take_lane(lane, lease, expires)
    if lane.rule then
      Gates.take(lane.gates, lane.rule.gates, lease, expires)
    end
  end

  -- Takes what a call of `job` to `upstream` takes, and writes the lease down.
  function enter_upstream(job, id, lane, upstream, expires)
    local holds = nil
    if job.holds then
      holds = {}
      for _, hold in ipairs(holds_at(job.holds, upstream)) do
        take_bucket(hold.bucket, hold.tokens)
        holds[#holds + 1] = hold.bucket
        holds[#holds + 1] = hold.tokens
      end
    end
    local generation = take_upstream(upstream, id, expires)
    put_lease(id, { use = 'job', job = job.id, lane = lane, upstream = upstream, generation = generation, holds = holds,
      expires = expires, owner = OWNER })
    job.upstream = upstream
    note(job, EVENT.STARTED, upstream)
  end

  -- The first untried upstream of a job's chain that admits it; else why not, until when, and which one will first.
  function first_admitting(lane, job, rank)
    local at, why, earliest = nil, 'no_worker', NEVER
    for _, name in ipairs(untried(lane, job)) do
      local reason, until_when = upstream_denies(name, next_lease_end)
      if not reason then
        local _, scoped, scoped_until = denied_hold(job.holds, name, rank)
        if not scoped then
          return name
        end
        reason, until_when = scoped, scoped_until
      end
      if until_when <= earliest then
        at, why, earliest = name, reason, until_when
      end
    end
    return nil, why, earliest, at
  end
end

-- What time does by itself.

local take_up_lost, release_due, drop_expired, next_event
do
  -- A job that takes this many workers down with it is given up.
  local MAX_LOST = 10

  local function failure_of(job, reason)
    return cmsgpack.pack(reason, nil, now, job.upstream)
  end

  local function take_up(lane, job, awaited)
    jobs:change(job.id)
    job.lost = min(job.lost + 1, 255)
    local retries = not lane.rule or lane.rule.retry.on_ambiguous == 'Retry'
    if not awaited and retries and job.lost < MAX_LOST then
      note(job, EVENT.TAKEN_UP)
      wait(lane, job, nil)
      give_way_after(lane, job)
      return
    end
    local reason = 'ten workers vanished with it'
    if awaited then
      reason = 'the upstream did not report back in time'
    elseif not retries then
      reason = 'its worker vanished; it may have been sent, and the lane does not send twice'
    end
    fail_attempt(job, failure_of(job, reason))
    die(lane, job)
  end

  -- Puts jobs whose lease ran out back to the front of their own line. Returns which.
  function take_up_lost()
    local taken_up = {}
    for _ = 1, MAX_BATCH do
      local ends, id = next_lease_end()
      if ends > now or now < basin.grace_until then
        break
      end
      local lease = remove_lease(id)
      local awaited = lease.use == 'awaiting'
      leave(id, lease, { result = awaited and 'TimedOut' or 'Unknown' })
      if lease.job then
        local job = jobs:get(lease.job)
        local lane = lane_of(job.lane)
        stop_processing(lane, job)
        taken_up[#taken_up + 1] = job.id
        take_up(lane, job, awaited)
      end
    end
    return taken_up
  end

  -- Moves jobs that are due into their lines. One that was scheduled lines up as if it came now.
  function release_due(lane)
    for _ = 1, MAX_BATCH do
      local member, due = due_jobs(lane):first()
      if not member or due > now then
        return
      end
      local job = jobs:get(string.sub(member, 9))
      stop_waiting(lane, job)
      if job.attempts == 0 then
        job.seq = take_seq(lane)
      end
      wait(lane, job, nil)
    end
  end

  function drop_expired(lane)
    for _ = 1, MAX_BATCH do
      local member, expires = expiring(lane):first()
      if not member or expires >= now then
        return
      end
      drop_job(lane, jobs:get(string.sub(member, 9)), 'ttl_expired')
    end
  end

  -- When something in `lane` happens by itself. A job may still start at the very moment it expires.
  function next_event(lane)
    local _, due = due_jobs(lane):first()
    local _, expires = expiring(lane):first()
    return min(due or NEVER, expires and expires + 1 or NEVER, (next_lease_end()))
  end
end

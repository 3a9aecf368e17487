-- Jobs that wait: counted, in their lines, or held back until they are due.

local join_equals, leave_equals, expiring, due_jobs, set_odd, victim, untried, line_of_job, stand_in_line, wait,
  stop_waiting
do
  function expiring(lane)
    return set_of(lane, 'expiry')
  end

  function due_jobs(lane)
    return set_of(lane, 'due')
  end

  -- Tenants of a level by how many of their jobs could be evicted, the longest backlog first.
  local function backlogs(lane, level)
    local found = lane.backlogs[level]
    if not found then
      found = set(key('backlog', lane.name, level))
      lane.backlogs[level] = found
    end
    return found
  end

  -- Jobs that could be evicted and are not simply the last of their tenant's first line.
  local function odd_jobs(lane, level, tenant)
    return set(key('odd', lane.name, level, tenant))
  end

  local function count_evictable(lane, job, count)
    local turn = turn_of(lane, job)
    local level, state = lane.levels[job.level], at_level(turn, job.level)
    level.evictable = level.evictable + count
    level.evictable_bytes = level.evictable_bytes + count * job.bytes
    state.evictable = state.evictable + count
    local member = turn.backlog
    if not member then
      member = numbered(2 ^ 48 - turn.arrival, turn.name)
      turn.backlog = member
    end
    if state.evictable > 0 then
      backlogs(lane, job.level):add(member, -state.evictable)
    else
      backlogs(lane, job.level):remove(member)
    end
    return turn
  end

  -- Makes a job findable for eviction where the end of its line does not tell.
  function set_odd(lane, job, turn)
    job.odd = true
    odd_jobs(lane, job.level, turn.name):add(job.id, job.seq)
  end

  local function enter(lane, job, due)
    lane.waiting = lane.waiting + 1
    lane.waiting_bytes = lane.waiting_bytes + job.bytes
    if job.expires < NEVER then
      expiring(lane):add(numbered(job.seq, job.id), job.expires)
    end
    job.odd = nil
    job.shared = not takes_own_turn(lane) or nil
    if job.attempts == 0 then
      local turn = count_evictable(lane, job, 1)
      if due or job.upstream or job.holds or job.chain ~= lane.default_chain then
        set_odd(lane, job, turn)
      end
    end
  end

  local function exit(lane, job)
    lane.waiting = lane.waiting - 1
    lane.waiting_bytes = lane.waiting_bytes - job.bytes
    if job.expires < NEVER then
      expiring(lane):remove(numbered(job.seq, job.id))
    end
    if job.attempts == 0 then
      local turn = count_evictable(lane, job, -1)
      if job.odd then
        odd_jobs(lane, job.level, turn.name):remove(job.id)
      end
    end
  end

  -- The last job of a line that was not tried yet. Those of its own chain that were tried stand before it; others may have
  -- come from chains of which only this one is left to try, and so many of them are looked at.
  local function last_untried(waiting)
    local last = waiting:last()
    local job = last and jobs:get(last)
    if not job or job.attempts == 0 then
      return job
    end
    local ids = waiting:last_ones(MAX_LOOKS)
    jobs:fetch(ids)
    for _, id in ipairs(ids) do
      job = jobs:get(id)
      if job.attempts == 0 then
        return job
      end
    end
  end

  -- The job to evict from `level`: the newest of the tenant with the longest backlog.
  function victim(lane, level)
    local member = backlogs(lane, level):first()
    if not member then
      return nil
    end
    local tenant = string.sub(member, 9)
    local odd, odd_seq = odd_jobs(lane, level, tenant):last()
    local job = last_untried(jobs_in(lane, line_for(level, lane.default_chain, tenant).id))
    if job and not job.odd and (not odd or job.seq > odd_seq) then
      return job
    end
    return odd and jobs:get(odd)
  end

  -- The upstreams a job has not tried in this attempt.
  function untried(lane, job)
    if job.tried == 0 then
      return upstreams_in(lane.groups[job.chain])
    end
    local names = {}
    for place, name in ipairs(upstreams_in(lane.groups[job.chain])) do
      if bit.band(job.tried, bit.lshift(1, place - 1)) == 0 then
        names[#names + 1] = name
      end
    end
    return names
  end

  function line_of_job(lane, job)
    local group = job.tried == 0 and job.chain or group_of(lane, table.concat(untried(lane, job), ','))
    return line_for(job.level, group, job.shared and turn_of(lane, job).name or job.tenant, job.holds)
  end

  -- Puts a waiting job into the line it belongs to, by its number.
  function stand_in_line(lane, job)
    if job.tried ~= 0 and #untried(lane, job) == 0 then
      -- Its worker vanished or gave it back after the whole chain had failed: that attempt is over.
      job.tried = 0
    end
    push(lane, line_of_job(lane, job), job)
    job.phase, job.at, job.lease = QUEUED, nil, nil
  end

  -- Counts a job among the waiting ones and puts it into its line, or holds it back until `due`.
  function wait(lane, job, due)
    jobs:change(job.id)
    enter(lane, job, due)
    if due then
      job.phase, job.at, job.lease = PENDING, due, nil
      due_jobs(lane):add(numbered(job.seq, job.id), due)
      lane.pending = lane.pending + 1
    else
      stand_in_line(lane, job)
    end
    join_equals(lane, job)
  end

  -- Takes a job out of everything that waits; the opposite of `wait`.
  function stop_waiting(lane, job)
    if not is_waiting(job) then
      return
    end
    jobs:change(job.id)
    leave_equals(lane, job)
    if job.phase == PENDING then
      due_jobs(lane):remove(numbered(job.seq, job.id))
      lane.pending = lane.pending - 1
    elseif job.phase == QUEUED then
      pull(lane, line_of_job(lane, job), job)
    else
      local level = lane.levels[job.level]
      level.aside = level.aside - 1
    end
    exit(lane, job)
  end
end

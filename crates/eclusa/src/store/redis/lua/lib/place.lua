-- Where a job is among those that wait, what holds it back, and when it will start as far as can be told.

local place_of
do
  -- About how many jobs of its line stand before it: exact at both ends, between them by proportion.
  local function ahead_in(lane, line, job)
    local waiting = jobs_in(lane, line.id)
    local count = line_length(lane, line)
    if job.seq + 1 == lane.next_seq then
      -- Nobody came after it.
      return count - 1
    end
    local _, first = waiting:first()
    local _, last = waiting:last()
    if not first or first == last then
      return 0
    end
    return floor(max(job.seq - first, 0) * (count - 1) / (last - first))
  end

  -- A formula, not a scan: all of higher levels, those before it in its line, and what other tenants get in the turns until
  -- then.
  local function position(lane, job)
    if job.phase ~= QUEUED then
      return 0
    end
    local line = line_of_job(lane, job)
    local above = 0
    for level = HIGH, line.level - 1 do
      above = above + lane.levels[level].queued
    end
    local own = ahead_in(lane, line, job)
    local fairness = lane.rule and lane.rule.fairness
    if not fairness then
      return above + own
    end
    local level = lane.levels[line.level]
    local others = max(level.queued - line_length(lane, line), 0)
    local turns = floor(own / tenants_of(lane):get(line.tenant).quota) + 1
    local neighbours = max((level.ready[line.group] or 0) - 1, 0)
    return above + own + min(others, turns * neighbours * fairness.batch)
  end

  local asked

  at_start[#at_start + 1] = function()
    asked = {}
  end

  -- Where a job would be admitted now, else why not. The gates say the same to all jobs of a line that hold nothing.
  local function admitting(lane, job)
    local line = line_of_job(lane, job)
    if line.holds then
      return first_admitting(lane, job, rank_of(lane, line))
    end
    asked[lane] = asked[lane] or {}
    local told = asked[lane][line.group]
    if not told then
      told = { first_admitting(lane, job) }
      asked[lane][line.group] = told
    end
    return told[1], told[2], told[3], told[4]
  end

  -- The first thing on the list that holds the job back: why, until when, where.
  local function obstacle(lane, job, ahead)
    if job.phase == FINISHED then
      return nil
    end
    if job.phase == PROCESSING then
      local lease = leases:get(job.lease)
      if lease and lease.use == 'awaiting' then
        return 'awaiting_webhook', lease.expires, lease.upstream
      end
      return nil
    end
    local leading = (job.phase == QUEUED or job.phase == COALESCED) and leader_of(lane, job)
    if leading or job.phase == COALESCED then
      local first = leading and jobs:get(leading)
      return 'coalesced', NEVER, first and first.upstream
    end
    if lane.paused then
      return 'paused', NEVER
    end
    if job.phase == PENDING then
      return job.attempts > 0 and 'retry_backoff' or 'scheduled', job.at
    end
    local reason, at = lane_denies(lane, next_lease_end)
    if reason then
      return reason, at
    end
    local upstream, why, until_when, where = admitting(lane, job)
    if not upstream then
      return why, until_when, where
    end
    return ahead > 0 and 'behind' or 'no_worker', now
  end

  local function eta(lane, job, until_when, where, ahead)
    if until_when == NEVER then
      return nil
    end
    local upstream = upstream_of(where or untried(lane, job)[1])
    local allowed = upstream and upstream.rule and Gates.interval_us(upstream.gates, upstream.rule) or 0
    return after(max(until_when, now), floor(max(allowed, lane.tempo.interval_us) * ahead / 1000))
  end

  function place_of(lane, job)
    local ahead = position(lane, job)
    local reason, until_when, where = obstacle(lane, job, ahead)
    return {
      phase = job.phase, how = job.how, expires = job.expires, position = ahead, reason = reason,
      at = where or job.upstream, waits = is_waiting(job),
      eta = reason and is_waiting(job) and eta(lane, job, until_when, where, ahead) or nil,
    }
  end
end

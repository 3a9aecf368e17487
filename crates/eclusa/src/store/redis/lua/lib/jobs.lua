-- Jobs. Small payloads stand in the job's own record, large ones beside it; answers always beside it. A record is as short
-- as it can be, for there are many: a job that never expires says so by nothing, and nothing stands at its end.

local PENDING, QUEUED, COALESCED, PROCESSING, FINISHED, EVENT, jobs, results, pack_job, keep_payload, payload_of,
  forget_payload, is_waiting, is_expired, was_last_noted, note
do
  PENDING, QUEUED, COALESCED, PROCESSING, FINISHED = 1, 2, 3, 4, 5
  local INLINE = 512
  local MAX_TIMELINE = 20
  EVENT = { STARTED = 1, FAILED = 2, RETRY_AT = 3, WAITS_FOR_REST = 4, TAKEN_UP = 5, RELEASED = 6, AWAITING = 7, SERVED = 8 }

  local function read_job(raw, id)
    local lane, tenant, level, seq, created, expires, chain, bytes, phase, at, lease, tried, attempts, lost, upstream, odd,
      shared, payload, name, cache_key, holds, replay_of, failure, events, timeline, how, answered = cmsgpack.unpack(raw)
    return {
      id = id, lane = lane, tenant = tenant, level = level, seq = seq, created = created, expires = expires or NEVER, chain = chain,
      bytes = bytes, phase = phase, at = at, lease = lease, tried = tried, attempts = attempts, lost = lost,
      upstream = upstream, odd = odd, shared = shared, payload = payload, key = name, cache_key = cache_key, holds = holds,
      replay_of = replay_of, failure = failure, events = events, timeline = timeline, how = how,
      answered = answered,
    }
  end

  function pack_job(job)
    local expires = job.expires < NEVER and job.expires or nil
    if job.key or job.cache_key or job.holds or job.replay_of or job.failure or job.events or job.how then
      return cmsgpack.pack(job.lane, job.tenant, job.level, job.seq, job.created, expires, job.chain, job.bytes, job.phase,
        job.at, job.lease, job.tried, job.attempts, job.lost, job.upstream, job.odd, job.shared, job.payload, job.key,
        job.cache_key, job.holds, job.replay_of, job.failure, job.events, job.timeline, job.how, job.answered)
    end
    return cmsgpack.pack(job.lane, job.tenant, job.level, job.seq, job.created, expires, job.chain, job.bytes, job.phase,
      job.at, job.lease, job.tried, job.attempts, job.lost, job.upstream, job.odd, job.shared, job.payload)
  end

  local function as_it_is(raw)
    return raw
  end

  jobs = basin_records('jobs', read_job, pack_job)
  local payloads = basin_records('payloads', as_it_is, as_it_is)
  results = basin_records('results', as_it_is, as_it_is)

  function keep_payload(job, payload)
    if #payload <= INLINE then
      job.payload = payload
    else
      payloads:put(job.id, payload)
    end
  end

  function payload_of(job)
    return job.payload or payloads:get(job.id) or ''
  end

  function forget_payload(job)
    if job.bytes > INLINE then
      payloads:remove(job.id)
    end
  end

  function is_waiting(job)
    return job.phase <= COALESCED
  end

  function is_expired(job)
    return now > job.expires
  end

  function was_last_noted(job, event, detail)
    local noted = cmsgpack.pack(event, detail)
    return job.timeline ~= nil and string.sub(job.timeline, -#noted) == noted
  end

  function note(job, event, detail)
    jobs:change(job.id)
    job.timeline = (job.timeline or '') .. cmsgpack.pack(now, event, detail)
    job.events = (job.events or 0) + 1
    if job.events > MAX_TIMELINE then
      local first = cmsgpack.unpack_limit(job.timeline, 3, 0)
      job.timeline, job.events = string.sub(job.timeline, first + 1), MAX_TIMELINE
    end
  end
end

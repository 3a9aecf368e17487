-- How jobs end: each in exactly one final status. Every verb tells which did.

local ended, letters_of, letter_order, remove_letter, finished_jobs, trim_finished, count_end, finish, drop_job,
  keep_answer, fail_attempt, die, expect_ends
do
  local COUNTED = {
    completed = 'completed', cache = 'cache_hits', coalesced = 'coalesced', breaker_aberto = 'fallbacks',
    timeout = 'fallbacks', erro_5xx = 'fallbacks', failed = 'failed', dead = 'failed', cancelled = 'cancelled',
    preempted = 'preempted', ttl_expired = 'expired', queue_full = 'refused',
  }

  local COMPLETED = { completed = true, cache = true, coalesced = true, breaker_aberto = true, timeout = true, erro_5xx = true }

  -- Dead letters of a lane; in their order each member says since when and how long it is kept.
  local function read_letter(raw)
    local name, tenant, level, payload, chain, holds, attempts, failure, enqueued, moved, ttl, replay, number =
      cmsgpack.unpack(raw)
    return { key = name, tenant = tenant, level = level, payload = payload, chain = chain, holds = holds,
      attempts = attempts, failure = failure, enqueued = enqueued, moved = moved, ttl = ttl, replay = replay,
      number = number }
  end

  local function pack_letter(letter)
    return cmsgpack.pack(letter.key, letter.tenant, letter.level, letter.payload, letter.chain, letter.holds,
      letter.attempts, letter.failure, letter.enqueued, letter.moved, letter.ttl, letter.replay, letter.number)
  end

  function letters_of(lane)
    return records(key('dead', lane.name), read_letter, pack_letter)
  end

  function letter_order(lane)
    return set_of(lane, 'dead-order')
  end

  local function letter_member(id, letter)
    return struct.pack('>I8I8', letter.moved, letter.ttl) .. id
  end

  function remove_letter(lane, id)
    local letter = letters_of(lane):get(id)
    if letter then
      letters_of(lane):remove(id)
      letter_order(lane):remove(letter_member(id, letter))
      lane.dead = lane.dead - 1
    end
    return letter ~= nil
  end

  -- What a job takes from scoped buckets with the rules of those: { upstream, bucket, tokens, capacity, refill }, …
  local function holds_with_rules(job)
    if not job.holds then
      return nil
    end
    local all, holds = { cmsgpack.unpack(job.holds) }, {}
    for i = 1, #all, 3 do
      local rule = buckets:get(all[i + 1]).rule
      holds[#holds + 1] = { all[i], all[i + 1], all[i + 2], rule.capacity, rule.refill_micro, rule.refill_ms }
    end
    return cmsgpack.pack(holds)
  end

  -- Writes a dead letter; says whether a new one.
  local function bury(lane, job)
    local rule = lane.rule and lane.rule.dead_letters
    if not rule then
      return false
    end
    local first = job.replay_of and letters_of(lane):change(job.replay_of)
    if first then
      first.attempts, first.failure = first.attempts + job.attempts, job.failure
      return false
    end
    remove_letter(lane, job.id)
    local letter = {
      key = job.key, tenant = job.tenant, level = job.level, payload = payload_of(job), chain = lane.groups[job.chain],
      holds = holds_with_rules(job), attempts = job.attempts, failure = job.failure, enqueued = job.created, moved = now,
      ttl = rule.ttl, number = take_seq(lane),
    }
    letters_of(lane):put(job.id, letter)
    letter_order(lane):add(letter_member(job.id, letter), letter.number)
    lane.dead, lane.totals.dead = lane.dead + 1, lane.totals.dead + 1
    return true
  end

  local function end_replay(lane, job, completed)
    if not job.replay_of then
      return
    end
    if completed then
      remove_letter(lane, job.replay_of)
    else
      local letter = letters_of(lane):change(job.replay_of)
      if letter then
        letter.replay = nil
      end
    end
  end

  -- Finished jobs of a lane, oldest first.
  function finished_jobs(lane)
    local found = lane.finished_queue
    if not found then
      found = queue(key('finished', lane.name))
      lane.finished_queue = found
    end
    return found
  end

  -- Jobs that went as they ended. Who said that it waits for one finds it for a while.
  local gone
  local FOUND_FOR = 10000

  at_end[#at_end + 1] = function()
    for _, one in ipairs(gone) do
      if redis.call('EXISTS', key('wanted', one.job)) == 1 then
        redis.call('SET', key('gone', one.job), cmsgpack.pack(one.forgotten), 'PX', FOUND_FOR)
      end
    end
  end

  local function forget_job(lane, id)
    local job = jobs:get(id)
    if not job then
      return
    end
    local last = ended[#ended]
    if last and last.job == id then
      -- It goes as it ends: nobody can read it any more.
      last.forgotten = { record = pack_job(job), payload = not job.payload and payload_of(job) or nil,
        result = job.answered and results:get(id) or nil }
      gone[#gone + 1] = last
    end
    jobs:remove(id)
    forget_payload(job)
    if job.answered then
      results:remove(id)
    end
    let_go_tenant(lane, job.tenant)
  end

  local function fetch_jobs(lane, ids)
    jobs:fetch(ids)
    local names = {}
    for _, id in ipairs(ids) do
      local job = jobs:get(id)
      names[#names + 1] = job and job.tenant or nil
    end
    tenants_of(lane):fetch(names)
  end

  local expected_ends

  at_start[#at_start + 1] = function()
    ended, gone, expected_ends = {}, {}, 0
  end

  -- Says that so many jobs will probably end, so that what goes for them can be read at once.
  function expect_ends(count)
    expected_ends = count
  end

  -- Forgets finished jobs that are kept no longer.
  function trim_finished(lane)
    local keep = lane.rule and lane.rule.keep or { span = 600000, max = 10000 }
    local finished = finished_jobs(lane)
    local surplus = lane.finished - keep.max
    if surplus > 0 and expected_ends > 1 then
      surplus, expected_ends = surplus + expected_ends - 1, 0
    end
    if surplus > 1 then
      local ids = {}
      for _, member in ipairs(finished:ahead(surplus)) do
        ids[#ids + 1] = string.sub(member, 9)
      end
      fetch_jobs(lane, ids)
    end
    for _ = 1, MAX_BATCH do
      local first = lane.finished > 0 and finished:first()
      if not first or not (lane.finished > keep.max or after(number_in(first), keep.span) <= now) then
        return
      end
      finished:pop()
      lane.finished = lane.finished - 1
      forget_job(lane, string.sub(first, 9))
    end
  end

  local function tell_end(job, how, failure)
    ended[#ended + 1] = { job = job.id, lane = job.lane, tenant = job.tenant, level = job.level, attempts = job.attempts,
      created = job.created, how = how, failure = failure }
  end

  function count_end(lane, how)
    local counter = COUNTED[how]
    lane.totals[counter] = lane.totals[counter] + 1
  end

  -- Ends a job that neither waits nor runs any more.
  function finish(lane, job, how)
    jobs:change(job.id)
    if job.holds then
      local holds = { cmsgpack.unpack(job.holds) }
      for i = 1, #holds, 3 do
        remove_bucket_user(buckets:get(holds[i + 1]))
      end
      job.holds = nil
    end
    end_replay(lane, job, COMPLETED[how])
    count_end(lane, how)
    take_seq(lane)
    finished_jobs(lane):push(numbered(now, job.id))
    lane.finished = lane.finished + 1
    job.phase, job.at, job.lease, job.how = FINISHED, now, nil, how
    tell_end(job, how, (how == 'failed' or how == 'dead') and job.failure or nil)
    if job.cache_key then
      give_way(lane, job.cache_key, nil)
    end
    trim_finished(lane)
  end

  -- Drops a waiting job.
  function drop_job(lane, job, reason)
    stop_waiting(lane, job)
    finish(lane, job, reason)
  end

  -- Keeps what the upstream answered with a job that is about to end.
  function keep_answer(job, answer)
    if answer then
      results:put(job.id, answer)
      job.answered = true
    end
  end

  function end_with(lane, job, answer, by)
    if is_waiting(job) and is_expired(job) then
      drop_job(lane, job, 'ttl_expired')
      return
    end
    stop_waiting(lane, job)
    keep_answer(job, answer)
    note(job, EVENT.SERVED, by)
    finish(lane, job, by)
  end

  -- Notes that the upstream failed the job, once: an advance that finds nothing left has done so before the settlement.
  function fail_attempt(job, failure)
    if job.upstream and not was_last_noted(job, EVENT.FAILED, job.upstream) then
      note(job, EVENT.FAILED, job.upstream)
    end
    job.failure = failure
  end

  -- Ends a job that failed for good: as a dead letter where the lane keeps them.
  function die(lane, job)
    finish(lane, job, bury(lane, job) and 'dead' or 'failed')
  end
end

-- settle: ends leases, each for itself.
--   KEYS[1], ARGV[1..3]: see lib/base.lua; ARGV[4]: settlements { lease, result, costs, close_until, close_bucket, outcome, at, failure, answer }
--   returns: { leases = { how, at?, lease?, told: how many had ended then }, ended }

-- Ends a job whose pass failed with an old answer, if the failure is one that this is kept for.
local function fall_back(lane, job, told)
  if told.outcome ~= 'retry' and told.outcome ~= 'dead' and told.outcome ~= 'failed' then
    return nil
  end
  local why = (told.result == 'TimedOut' and 'timeout') or (told.result == 'Failed' and 'erro_5xx')
  local answer = why and usable_answer(lane, job)
  if not answer then
    return nil
  end
  fail_attempt(job, told.failure)
  end_with(lane, job, answer, why)
  return { how = 'completed' }
end

-- The call is made, the upstream works: the slot stays taken under a lease of its own, the lane's is free.
local function await(job, id, lease, told)
  -- What the upstream works on was sent, whatever was reported: no token may come back now and again at its end.
  if told.result == 'NotSent' then
    told.result = 'Unknown'
  end
  tell_gates(id, lease, told)
  settle_holds(lease, told)
  leave_lane(lease, 'Success')
  local _, _, nonce = struct.unpack('>I8I4I4', id)
  local new = issue_lease(nonce)
  put_lease(new, { use = 'awaiting', job = job.id, upstream = lease.upstream, generation = lease.generation,
    expires = told.at, owner = lease.owner })
  if job.upstream then
    note(job, EVENT.AWAITING, job.upstream)
  end
  job.phase, job.lease = PROCESSING, new
  jobs:change(job.id)
  return { how = 'awaiting', lease = new }
end

local function decide(lane, job, told)
  if told.outcome == 'done' or told.outcome == 'done_uncached' then
    if told.outcome == 'done' then
      store_answer(lane, job, told.answer)
    end
    keep_answer(job, told.answer)
    finish(lane, job, 'completed')
    return { how = 'completed' }
  end
  if told.outcome == 'release' then
    if job.tried == 0 then
      job.attempts = job.attempts - 1
    end
    note(job, EVENT.RELEASED)
    wait(lane, job, nil)
    give_way_after(lane, job)
    return { how = 'requeued' }
  end
  if told.outcome == 'retry' and told.at <= job.expires then
    fail_attempt(job, told.failure)
    job.tried = 0
    note(job, EVENT.RETRY_AT, told.at)
    wait(lane, job, told.at)
    give_way_after(lane, job)
    return { how = 'retry_at', at = told.at }
  end
  keep_answer(job, told.answer)
  fail_attempt(job, told.failure)
  if told.outcome == 'failed' then
    finish(lane, job, 'failed')
  else
    die(lane, job)
  end
  return { how = 'failed' }
end

local function settle(told)
  local lease = remove_lease(told.lease)
  if not lease then
    return { how = 'stale' }
  end
  if not lease.job then
    leave(told.lease, lease, told)
    return { how = 'released' }
  end
  local job = jobs:change(lease.job)
  if told.outcome == 'awaiting' then
    return await(job, told.lease, lease, told)
  end
  local lane = lane_of(job.lane)
  leave(told.lease, lease, told)
  stop_processing(lane, job)
  return fall_back(lane, job, told) or decide(lane, job, told)
end

function verbs.settle(question)
  local settlements = cmsgpack.unpack(question)
  local budget = { left = MAX_BATCH }
  local ids, job_ids = {}, {}
  for i, told in ipairs(settlements) do
    ids[i] = told.lease
  end
  leases:fetch(ids)
  for _, id in ipairs(ids) do
    local lease = leases:get(id)
    job_ids[#job_ids + 1] = lease and lease.job or nil
  end
  jobs:fetch(job_ids)
  expect_ends(#job_ids)

  local answers = {}
  for i, told in ipairs(settlements) do
    answers[i] = settle(told)
    serve_owed(budget)
    answers[i].told = #ended
  end

  write_all()
  keep_clock()
  publish_ended()
  return cmsgpack.pack({ leases = answers, ended = ended })
end

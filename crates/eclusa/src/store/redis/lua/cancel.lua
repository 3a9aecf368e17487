-- cancel: a job that runs is fenced off at once. Its call may still be under way and keeps its slots until its worker gives
-- them back or its lease ends, but nothing it says changes the job.
--   KEYS[1], ARGV[1..3]: see lib/base.lua; ARGV[4]: job
--   returns: { ended?, already? }

function verbs.cancel(question)
  local id = cmsgpack.unpack(question)
  local job = jobs:get(id)
  if not job then
    return cmsgpack.pack({})
  end
  if job.phase == FINISHED then
    return cmsgpack.pack({ already = job.how })
  end

  local lane = lane_of(job.lane)
  if is_waiting(job) then
    stop_waiting(lane, job)
  else
    local lease = leases:change(job.lease)
    lease.use, lease.job = job.tried ~= 0 and 'later' or 'call', nil
    stop_processing(lane, job)
  end
  finish(lane, job, 'cancelled')

  write_all()
  keep_clock()
  publish_ended()
  return cmsgpack.pack({ ended = ended[1] })
end

-- pause: stops or lets on the dispatch of a lane.
--   KEYS[1], ARGV[1..3]: see lib/base.lua; ARGV[4]: lane, whether to pause it
--   returns: whether there is such a lane

function verbs.pause(question)
  local name, paused = cmsgpack.unpack(question)
  local lane = lane_of(name)
  if lane then
    lane.paused = paused
    write_all()
    keep_clock()
  end
  return cmsgpack.pack(lane ~= nil)
end

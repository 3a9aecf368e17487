-- pause: stops or lets on the dispatch of a lane.
--   question: lane, whether to pause it
--   answer: whether there is such a lane

local name, paused = cmsgpack.unpack(ARGV[4])
local lane = lane_of(name)
if lane then
  lane.paused = paused
  write_all()
  keep_clock()
end
return cmsgpack.pack(lane ~= nil)

-- discard: lets a dead letter go.
--   question: lane, letter
--   answer: whether there was one

local name, id = cmsgpack.unpack(ARGV[4])
local lane = lane_of(name)
local found = lane ~= nil and remove_letter(lane, id)
if found then
  write_all()
  keep_clock()
end
return cmsgpack.pack(found)

-- discard: lets a dead letter go.
--   KEYS[1], ARGV[1..3]: see lib/base.lua; ARGV[4]: lane, letter
--   returns: whether there was one

function verbs.discard(question)
  local name, id = cmsgpack.unpack(question)
  local lane = lane_of(name)
  local found = lane ~= nil and remove_letter(lane, id)
  if found then
    write_all()
    keep_clock()
  end
  return cmsgpack.pack(found)
end

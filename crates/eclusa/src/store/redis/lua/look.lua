-- look: where a job is among those that wait, and why.
--   KEYS[1], ARGV[1..3]: see lib/base.lua; ARGV[4]: job
--   returns: { phase, how?, expires, position, reason?, at?, waits, eta?, gates = { { name, gates, in_flight } },
--             slot_free_at, now }, or nothing if it is unknown

function verbs.look(question)
  local job = jobs:get(cmsgpack.unpack(question))
  if not job then
    return cmsgpack.pack({})
  end
  local lane = lane_of(job.lane)
  local place, gates = place_of(lane, job), {}
  for i, name in ipairs(upstreams_in(lane.groups[job.chain])) do
    local upstream = upstream_of(name)
    gates[i] = { name = name, gates = cmsgpack.pack(upstream.gates), in_flight = upstream.gates.in_flight }
  end
  place.gates, place.slot_free_at, place.now = gates, (next_lease_end()), now
  return cmsgpack.pack(place)
end

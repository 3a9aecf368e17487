-- record: how a call without a lease went, and setting an upstream right by hand.
--   KEYS[1], ARGV[1..3]: see lib/base.lua; ARGV[4]: upstream, result of the call | 'recover' | 'reset', whether there must be a rule
--   returns: { gates, slot_free_at, now }, or nothing if the upstream is unknown

function verbs.record(question)
  local name, told, ruled = cmsgpack.unpack(question)
  local upstream = changed_upstream(name)
  if ruled and not (upstream and upstream.rule) then
    return redis.error_reply('NORULES ' .. name)
  end
  if not upstream then
    return cmsgpack.pack({})
  end
  if told == 'reset' then
    Gates.reset(upstream.gates)
  elseif told == 'recover' then
    Gates.recover(upstream.gates)
  elseif upstream.rule then
    Gates.record(upstream.gates, upstream.rule, told)
  end

  write_all()
  keep_clock()
  return cmsgpack.pack({ gates = cmsgpack.pack(upstream.gates), in_flight = upstream.gates.in_flight,
    slot_free_at = (next_lease_end()), now = now })
end

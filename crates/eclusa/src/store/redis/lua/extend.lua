-- extend: makes leases last longer, from now on.
--   KEYS[1], ARGV[1..3]: see lib/base.lua; ARGV[4]: lease (ms), leases
--   returns: for each whether it still exists

function verbs.extend(question)
  local lease_ms, ids = cmsgpack.unpack(question)
  leases:fetch(ids)

  local answers = {}
  for i, id in ipairs(ids) do
    local lease = leases:change(id)
    answers[i] = lease ~= nil
    if lease then
      lease.expires = after(now, lease_ms)
      lease_ends:add(id, lease.expires)
      if lease.upstream and #upstream_of(lease.upstream, lease.owner).gates.breaker.probes > 0 then
        Gates.extend(changed_upstream(lease.upstream, lease.owner).gates, id, lease.expires)
      end
    end
  end

  write_all()
  keep_clock()
  return cmsgpack.pack(answers)
end

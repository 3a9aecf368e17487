-- Lists that are written at one end and read at the other. What was pushed or popped is known to Redis at the end.

local queue
do
  local Queue = {}
  Queue.__index = Queue
  local queues, queue_order

  at_start[#at_start + 1] = function()
    queues, queue_order = {}, {}
  end

  function queue(name)
    local found = queues[name]
    if not found then
      found = setmetatable({ name = name, popped = 0, at = 1, pushed = {}, first_pushed = 1 }, Queue)
      queues[name] = found
      queue_order[#queue_order + 1] = found
    end
    return found
  end

  function Queue:read(count)
    if not self.window or (self.at > #self.window and not self.whole) then
      self.window = redis.call('LRANGE', self.name, whole(self.popped), whole(self.popped + count - 1))
      self.at, self.whole = 1, #self.window < count
    end
  end

  -- The oldest.
  function Queue:first()
    self:read(MAX_BATCH)
    return self.window[self.at] or self.pushed[self.first_pushed]
  end

  function Queue:pop()
    local first = self:first()
    if self.window[self.at] then
      self.at, self.popped = self.at + 1, self.popped + 1
    elseif first then
      self.first_pushed = self.first_pushed + 1
    end
    return first
  end

  -- What the next pops will bring, as far as it was read.
  function Queue:ahead(count)
    self:read(MAX_BATCH)
    local found = {}
    for i = self.at, min(#self.window, self.at + count - 1) do
      found[#found + 1] = self.window[i]
    end
    return found
  end

  function Queue:push(value)
    self.pushed[#self.pushed + 1] = value
  end

  at_end[#at_end + 1] = function()
    for _, changed in ipairs(queue_order) do
      if changed.popped > 0 then
        redis.call('LPOP', changed.name, whole(changed.popped))
      end
      local pushed = {}
      for i = changed.first_pushed, #changed.pushed do
        pushed[#pushed + 1] = changed.pushed[i]
      end
      in_parts('RPUSH', changed.name, pushed)
    end
  end
end

-- Sorted sets, looked at from their beginning. What was added or removed is known here at once and to Redis at the end.

local set, basin_set
do
  local Set = {}
  Set.__index = Set
  -- How many members are read at first, and at most; each time four times as many.
  local FIRST_WINDOW, MAX_WINDOW = 2, 128
  -- The last member that is read where so many are.
  local LAST = {}
  for size = 1, MAX_WINDOW do
    LAST[size] = whole(size - 1)
  end
  local sets, set_order
  local of_basin = {}

  local function begin(self, name)
    self.name, self.size, self.gone, self.own = name, FIRST_WINDOW, NOTHING, NOTHING
    self.window, self.at, self.whole, self.head, self.head_score, self.best, self.length = nil, nil, nil, nil, nil, nil, nil
  end

  at_start[#at_start + 1] = function()
    sets, set_order = {}, {}
    for i = 1, #of_basin do
      begin(of_basin[i], key(of_basin[i].what))
    end
  end

  function set(name)
    local found = sets[name]
    if not found then
      found = setmetatable({ name = name, size = FIRST_WINDOW, gone = NOTHING, own = NOTHING }, Set)
      sets[name] = found
      set_order[#set_order + 1] = found
    end
    return found
  end

  -- One of those that a basin has once: the same table in every call.
  function basin_set(what)
    local made = setmetatable({ what = what }, Set)
    of_basin[#of_basin + 1] = made
    return made
  end

  local function stands_before(score, member, other_score, other)
    if score ~= other_score then
      return score < other_score
    end
    return number_in(member) < number_in(other)
  end

  function Set:read()
    -- Members and scores by turns.
    self.window, self.at = redis.call('ZRANGE', self.name, '0', LAST[self.size], 'WITHSCORES'), 1
    self.head, self.head_score = nil, nil
    self.whole = #self.window < self.size * 2
    self.size = min(self.size * 4, MAX_WINDOW)
  end

  local function remove_gone(self)
    local own, removed = self.own, {}
    for member in pairs(self.gone) do
      if not own[member] then
        removed[#removed + 1] = member
      end
    end
    in_parts('ZREM', self.name, removed)
  end

  local function add_own(self)
    local added, count = {}, 0
    for member, score in pairs(self.own) do
      added[count + 1], added[count + 2] = whole(score), member
      count = count + 2
    end
    in_parts('ZADD', self.name, added)
  end

  function Set:write()
    if self.gone ~= NOTHING then
      remove_gone(self)
      self.gone = NOTHING
    end
    if self.own ~= NOTHING then
      add_own(self)
      self.own, self.best = NOTHING, nil
    end
  end

  -- The first of those added here. What comes after it is looked for only when it goes.
  local function first_added(self)
    local best = self.best
    if not best and self.own ~= NOTHING then
      local best_score = nil
      for member, score in pairs(self.own) do
        if not best or stands_before(score, member, best_score, best) then
          best, best_score = member, score
        end
      end
      self.best = best
    end
    return best
  end

  -- The first member and its score.
  function Set:first()
    while true do
      if not self.window then
        self:read()
      end
      local gone, own, window, at = self.gone, self.own, self.window, self.at
      local head = window[at]
      while head and (gone[head] or own[head]) do
        at = at + 2
        head = window[at]
      end
      self.at = at
      if head or self.whole then
        if self.head ~= head then
          self.head, self.head_score = head, tonumber(window[at + 1])
        end
        local head_score, added = self.head_score, first_added(self)
        if added and (not head or stands_before(own[added], added, head_score, head)) then
          return added, own[added]
        end
        return head, head_score
      end
      self:write()
      self.window = nil
    end
  end

  -- Reads at least so many members when it is next read.
  function Set:expect(count)
    self.size = max(self.size, min(count, MAX_WINDOW))
  end

  -- Members that will come first, at most `count`, as far as they were read.
  function Set:ahead(count)
    local found, at = {}, self.at
    while self.window and self.window[at] and #found < count do
      local member = self.window[at]
      if not self.gone[member] and not self.own[member] then
        found[#found + 1] = member
      end
      at = at + 2
    end
    return found
  end

  -- The last member and its score.
  function Set:last()
    self:write()
    self.window = nil
    local got = redis.call('ZRANGE', self.name, '0', '0', 'REV', 'WITHSCORES')
    return got[1], tonumber(got[2])
  end

  -- The last members, at most `count`, from the end.
  function Set:last_ones(count)
    self:write()
    self.window = nil
    return redis.call('ZRANGE', self.name, '0', whole(count - 1), 'REV')
  end

  -- The first member with a score of at least `from` and below `to`, and its score.
  function Set:first_between(from, to)
    self:write()
    self.window = nil
    local got = redis.call('ZRANGE', self.name, whole(from), '(' .. whole(to), 'BYSCORE', 'LIMIT', '0', '1', 'WITHSCORES')
    return got[1], tonumber(got[2])
  end

  function Set:count()
    self:write()
    self.window = nil
    local count = redis.call('ZCARD', self.name)
    if count == 0 then
      self.window, self.at, self.whole, self.head, self.head_score = NOTHING, 1, true, nil, nil
    end
    return count
  end

  function Set:remove(member)
    if self.gone == NOTHING then
      self.gone = {}
    end
    self.gone[member] = true
    if self.own[member] then
      self.own[member] = nil
      if self.best == member then
        self.best = nil
      end
    end
  end

  function Set:add(member, score)
    local own, best = self.own, self.best
    if own == NOTHING then
      own = {}
      self.own = own
    end
    if best == member then
      self.best = nil
    elseif best and stands_before(score, member, own[best], best) then
      self.best = member
    end
    own[member] = score
  end

  at_end[#at_end + 1] = function()
    for i = 1, #of_basin do
      of_basin[i]:write()
    end
    for i = 1, #set_order do
      set_order[i]:write()
    end
  end
end

-- The functions as a server knows them. While they are loaded there is nothing to call, not even `string`: all the rest is
-- made when the first of them is called.

local begin_call, verbs

local function register(verb, flags)
  local function callback(keys, args)
    if not verbs then
      begin_call, verbs = library()
    end
    begin_call(keys, args)
    return verbs[verb](args[4])
  end
  redis.register_function({ function_name = NAME .. '_' .. verb, callback = callback, flags = flags })
end

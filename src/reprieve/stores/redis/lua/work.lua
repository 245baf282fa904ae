-- A session settles what it finished and asks for more; or, without a session, changes are applied.
-- The first write is one that a full server allows, and with it all that follow: what is there can always be drained.
--
-- needs: calls forgotten record rate limits places line events settle fairness candidates claim
-- KEYS  1: the partition
-- ARGV  1: now, session ('' is none), number of the call, limit, queues, settings of the fair choice (msgpack)
--       2: changes, 30 bytes each, and from 3 on what some of them need: see settle.lua
-- Returns: {word, answers (a letter each), next time or '', place of the bell, number of the session's call before, ids of
--       the jobs, record, record, …}
--       word: 'ok'; 'again' for a repeat, whose jobs are those that the session still holds of that call;
--       'dead' or 'stale', and nothing was done
--
--   :ss hash: session → is dead, slots, and of its last call that did anything: number, answers, next time, ids of jobs,
--       number of the one before
--   :m  hash: slots = those of all sessions that live

local now, session, number, limit, queues_asked, settings = unpack(cmsgpack.unpack(ARGV[1]))

local function bell()
  local last = call('XREVRANGE', P .. ':b', '+', '-', 'COUNT', 1)[1]
  return last and last[1] or '0-0'
end

local is_dead, own_slots, last_number, last_answers, last_next, last_ids, before
if session ~= '' then
  local packed = call('HGET', P .. ':ss', session)
  if not packed then
    return {'dead'}
  end
  is_dead, own_slots, last_number, last_answers, last_next, last_ids, before = unpack(cmsgpack.unpack(packed))
  if number < last_number then
    return {'stale', format('%.0f', last_number)}
  elseif number == last_number then
    local answer = {'again', last_answers, last_next and format('%.0f', last_next) or '', bell(), before, ''}
    -- The dead are told what became of their changes; what they held belongs to others.
    local ids = is_dead == 0 and split(last_ids, 16) or {}
    local records = fetch(P .. ':j', ids)
    for place, lease in ipairs(fetch(P .. ':y:' .. session, ids)) do
      local of, at = 0, 0
      if lease then
        of, at = lease_of(lease)
      end
      if of == number then
        answer[#answer + 1], answer[#answer + 2] = ids[place], format('%.0f', at)
        answer[#answer + 1] = records[place]
      end
    end
    return answer
  elseif is_dead == 1 and ARGV[2] == '' then
    return {'dead'}
  end
end

call('HDEL', P .. ':m', '')
local answers, rung, freed = '', {}, {}
if ARGV[2] ~= '' then
  answers, rung, freed = settle(read_changes(ARGV[2], session, 3), now)
end

local out, leases, next_at = {ids = {}, records = {}}, {}, nil
if is_dead == 0 and limit > 0 then
  if return_all(now, settings) then
    next_at = now
  end
  local slots = tonumber(call('HGET', P .. ':m', 'slots') or 0)
  for _, name in ipairs(queues_asked) do
    local left = limit - #out.ids
    if left > 0 then
      local moment = visit(name, number, now, slots, settings, left, leases, out)
      if moment then
        next_at = min(next_at or math.huge, moment)
      end
    end
  end
  if #out.ids >= limit then
    next_at = now
  end
  many('HSET', P .. ':y:' .. session, leases)
end
flush()
if session ~= '' and (ARGV[2] ~= '' or leases[1]) then
  -- A call that did nothing can be repeated as it is.
  call('HSET', P .. ':ss', session,
    cmsgpack.pack({is_dead, own_slots, number, answers, next_at or false, concat(out.ids), last_number}))
end

-- Others may go on with what this call gave back or freed, and did not take itself.
if limit == 0 or #out.ids >= limit then
  for name in pairs(freed) do
    rung[name] = rung[name] or call('EXISTS', P .. ':t:' .. name) == 1 or nil
  end
  if next(freed) and call('ZCOUNT', P .. ':w', '-inf', now) > 0 then
    rung = {['*'] = true}
  end
end
for name in pairs(rung) do
  ring(name)
end
local answer = {'ok', answers, next_at and format('%.0f', next_at) or '', bell(), last_number or 0, concat(out.ids)}
for place = 1, #out.records do
  answer[6 + place] = out.records[place]
end
return answer

-- Jobs that leave the list of their lane otherwise than by a claim: cancelled, or retried by a person. A job is searched for
-- near both ends of the list. Further inside its entry stays as a leftover, until a claim meets it or half of the list are
-- leftovers: `:leftovers` counts them by id, `:leftover_lanes` by lane.
--
-- needs calls: tag, call
-- needs record: WAITING, is_sound, entry_of
-- needs waiting: fresh_key
-- exports: remove_fresh, drop_leftover, is_leftover

local MAX_SEARCHED = 1000 -- entries at either end of a list

local function count_leftover(lane_name, id, step)
  if call('HINCRBY', tag .. ':leftovers', id, step) <= 0 then
    call('HDEL', tag .. ':leftovers', id)
  end
  if call('HINCRBY', tag .. ':leftover_lanes', lane_name, step) <= 0 then
    call('HDEL', tag .. ':leftover_lanes', lane_name)
  end
end

-- Removes the entry of a fresh job from its lane, or notes that it is a leftover.
function remove_fresh(lane, id, version)
  local key, entry = fresh_key(lane.name), entry_of(id, version)
  if call('LPOS', key, entry, 'MAXLEN', MAX_SEARCHED) then
    call('LREM', key, 1, entry)
  elseif call('LPOS', key, entry, 'RANK', -1, 'MAXLEN', MAX_SEARCHED) then
    call('LREM', key, -1, entry)
  else
    count_leftover(lane.name, id, 1)
  end
  lane.ready = lane.ready - 1
end

-- Notes that a leftover was taken off its lane.
function drop_leftover(lane_name, id)
  count_leftover(lane_name, id, -1)
end

-- Whether an entry of a lane has no job that waits in that version. A record that cannot be read does not tell.
function is_leftover(id, entry, record)
  if record and is_sound(record) then
    local version, state = struct.unpack('>I4B', record)
    return state ~= WAITING or entry ~= entry_of(id, version)
  end
  return not record or call('HEXISTS', tag .. ':leftovers', id) == 1
end

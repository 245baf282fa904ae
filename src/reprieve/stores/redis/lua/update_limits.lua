-- Sets an entry, if one is named, and changes limits, weights and pauses; nothing if the entry has another version.
--
-- With several partitions all of them come to apply the same limits. The limits that are wanted are recorded in the first
-- partition as a numbered state, and every partition applies one state after the other. Of a limit that is shared a
-- partition has a share of 0 until shares are granted.
--
-- needs calls: tag, call, format, call_many, write_even_when_full, notify
-- needs rate: change_rate
-- needs limit_defaults: PERMITS, MAX_RUNNING, RATE, PAUSES, has_bit, without_bit
-- needs tenants: queue_of
-- needs rechecks: begin_search
-- needs lanes: flush, has_pairs, begin_pairs
-- needs sessions: all_sessions, unpack_lease
-- needs audit: with_fields, record_audit
-- needs events: record_events
-- needs entries: read_entry, change_entry
-- needs changes: read_changes
-- needs settle: can_settle, settle
-- needs new_jobs: store_new_jobs
-- needs limit_audit: facts_before
-- needs subjects: load_subjects, limits_of, allow
-- KEYS     1: the partition
-- ARGV     1: now, updates, state (msgpack)
--             An update is a subject, see subjects.lua, with what is to change: `permits`, `max_running`, `rate` (a map
--             with `count`, `window` in ms and `bucket`), each false for none; a tenant's `weight`; a queue's `pauses`;
--             `inherited`: bits of what it no longer has of its own. `is_default`: it is the default of the subject
--             A state is false for a store of one partition, else a map with `number`, `step`, and `partitions`, for how
--             many of them defaults were split:
--             'record' writes the wanted limits, 'record_and_apply' also changes them here, both in the first partition
--             if its wanted state is `seen` (and `seen_direct` is how often it was changed as the only partition, or -1);
--             'apply_next' is the change from the state before; 'apply_all' is everything that is wanted, and the removal
--             of what the partition, in the state `seen`, has beside that
--          2: 'entry' or ''  3: its key  4: the version seen  5: 'set' or 'delete'  6: the value  7: 8 bytes that tell
--             this write from any other, so that a repeat gets the same reply while the change is known
--          8: when it expires, or 0
--          9: the audit entry of the entry, that of each update, and notices for the stream of events, each after its length
--             (4 bytes). An audit entry is '' for none. In a store of one partition that of an update has no `before`, which
--             is added here; an update that changes nothing has none then
--          10: how many fields follow; with an entry also the names of lanes of new jobs, and how many jobs (msgpack)
--          11 …: for 'record' and 'record_and_apply': fields of `:wanted_limits`, each with its value; a field but '' without
--             a value is deleted
--          With an entry then the heads, the keys, the events and the records of new jobs, see enqueue.lua, and the heads of changes with
--          what some of them need, see settle.lua
-- Returns: {word, version}: 'ok' and the entry's version now, then the results of the changes, and number of a job, id of the
--          job that has its key, …; 'done': an earlier call has written it; 'lost': the entry has another version;
--          'refused' and the results: a change does not apply; 'grown': there are keys, and they are kept elsewhere;
--          'overtaken': the wanted limits have changed, or the partition has not applied the state before. But for 'ok'
--          nothing was done


local field_count, lane_names, job_count = unpack(cmsgpack.unpack(ARGV[10]))
local now, updates, state = unpack(cmsgpack.unpack(ARGV[1]))
local entry = ARGV[2] == 'entry' and {
  key = ARGV[3], version = tonumber(ARGV[4]), is_deleted = ARGV[5] == 'delete', value = ARGV[6], write_id = ARGV[7],
  expires = tonumber(ARGV[8]),
}

-- Returns the reply of a call that is a repeat, or has seen another version of the entry.
local function early_reply()
  local done = call('ZSCORE', tag .. ':entry_changes', entry.write_id .. entry.key)
  if done then
    return {'done', entry.is_deleted and '0' or done}
  end
  if read_entry(entry.key, now) ~= entry.version then
    return {'lost', '0'}
  end
end

-- Writes the entry; returns its version.
local function write_entry()
  local version = change_entry(entry.key, entry.write_id, not entry.is_deleted and entry.value or nil, entry.expires)
  return entry.is_deleted and '0' or tostring(version)
end

local function record_wanted()
  local fields, gone = {}, {}
  for index = 11, 10 + field_count, 2 do
    local field, value = ARGV[index], ARGV[index + 1]
    if value == '' and field ~= '' then
      gone[#gone + 1] = field
    else
      fields[#fields + 1], fields[#fields + 2] = field, value
    end
  end
  call_many('HSET', tag .. ':wanted_limits', fields)
  call_many('HDEL', tag .. ':wanted_limits', gone)
  call('HSET', tag .. ':meta', 'wanted_state', format('%.0f', state.number))
end

-- Moves the numbers of the wanted and the applied state on. Returns 'overtaken' or 'ok' if nothing else is to be done.
local function advance_state()
  local found = call('HMGET', tag .. ':meta', 'wanted_state', 'applied_state', 'direct_updates', 'applied_partitions')
  local wanted, applied, direct = tonumber(found[1] or 0), tonumber(found[2] or 0), tonumber(found[3] or 0)
  local partitions = tonumber(found[4] or 0)
  if not state then
    if wanted > 0 and updates[1] then
      return 'overtaken'
    elseif updates[1] then
      call('HINCRBY', tag .. ':meta', 'direct_updates', 1)
    end
    return
  end
  local step = state.step
  if step == 'record' and (wanted ~= state.seen or state.seen_direct >= 0 and state.seen_direct ~= direct)
    or step == 'record_and_apply' and (wanted ~= state.seen or applied ~= state.seen)
    or step == 'apply_next' and applied < state.number - 1
    or step == 'apply_all' and applied ~= state.seen and applied < state.number then
    return 'overtaken'
  elseif applied >= state.number and (step == 'apply_next' or step == 'apply_all'
    and (applied > state.number or partitions >= state.partitions)) then
    return 'ok'
  end
  if step == 'record' or step == 'record_and_apply' then
    record_wanted()
  end
  if step ~= 'record' then
    -- A change alone does not split the other defaults for more partitions.
    partitions = step == 'apply_all' and state.partitions or math.min(partitions, state.partitions)
    call('HSET', tag .. ':meta', 'applied_state', format('%.0f', state.number), 'applied_partitions', partitions)
  end
end

-- Returns the share of a limit: all of it in a store of one partition.
local function share(limit)
  return limit and (state and 0 or limit)
end

-- Returns which fields are its own after an update.
local function own_after(own, update)
  for name, bit in pairs({permits = PERMITS, max_running = MAX_RUNNING, rate = RATE, pauses = PAUSES}) do
    own = without_bit(own, bit)
      + ((update[name] ~= nil or has_bit(own, bit) and not has_bit(update.inherited, bit)) and bit or 0)
  end
  return own
end

-- Sets the default of a subject; what waits for the old one is checked again.
local function apply_default(update)
  local field = update.subject .. update.queue .. update.dependency
  local packed = call('HGET', tag .. ':limit_defaults', field)
  local default = packed and cmsgpack.unpack(packed) or {own = 0}
  default.own = own_after(default.own, update)
  for _, name in ipairs({'permits', 'max_running', 'pauses'}) do
    if update[name] ~= nil then
      default[name] = update[name]
    end
  end
  if update.rate ~= nil then
    local rate = update.rate or {}
    default.count, default.window, default.bucket = rate.count or false, rate.window or false, rate.bucket or false
  end
  if default.own == 0 then
    call('HDEL', tag .. ':limit_defaults', field)
  else
    call('HSET', tag .. ':limit_defaults', field, cmsgpack.pack(default))
  end
  begin_search(update.subject)
end

local function apply(update)
  local limits = limits_of(update)
  limits.is_changed = true
  limits.own = own_after(limits.own, update)
  if update.permits ~= nil then
    limits.permits = share(update.permits)
  end
  if update.max_running ~= nil then
    limits.max_running = share(update.max_running)
  end
  if update.rate ~= nil then
    local rate = update.rate or {count = false, window = false, bucket = false}
    change_rate(limits, share(rate.count), rate.window, rate.bucket, now)
  end
  limits.weight = update.weight or limits.weight
  allow(update)
  if update.subject == 't' or update.subject == 'q' then
    local queue = queue_of(update.subject == 't' and update.queue or update.name)
    queue.is_changed = true
    queue.pauses = update.pauses or queue.pauses
  end
end

-- Returns the parts of an argument, each of which stands after its length.
local function parts_of(text)
  local parts, place = {}, 1
  while place <= #text do
    parts[#parts + 1], place = struct.unpack('>I4c0', text, place)
  end
  return parts
end

-- Adds the audit entry of an update that is about to be applied.
local function add_audit(entries, update, packed)
  if packed ~= '' and not state then
    local before = facts_before(update, cmsgpack.unpack(packed).after)
    packed = before and with_fields(packed, {before = before}) or ''
  end
  if packed ~= '' then
    entries[#entries + 1] = packed
  end
end

-- Returns the lane of each running job.
local function leased_lanes()
  local found = {}
  for _, session in ipairs(all_sessions()) do
    for _, packed in ipairs(call('HVALS', tag .. ':leases:' .. session)) do
      local _, _, _, lane = unpack_lease(packed)
      found[#found + 1] = lane
    end
  end
  return found
end

if job_count == 0 then
  -- Else the first write is one that a full server refuses: it takes no new jobs.
  write_even_when_full()
end
local reply = entry and early_reply()
if reply then
  return reply
end
local jobs_at = 11 + field_count
local changes_at = jobs_at + 3 + job_count
local changes = entry and read_changes(ARGV[changes_at], '', ARGV, changes_at + 1) or {}
if changes[1] then
  local can, results = can_settle(changes, now)
  if not can then
    return {'refused', '0', results}
  end
end
if job_count > 0 and ARGV[jobs_at + 1] ~= '' and tonumber(call('HGET', tag .. ':meta', 'partitions') or 1) > 1 then
  return {'grown', '0'}
end
-- All is read before anything is written: a key of another type fails the call as a whole.
local named = {}
for _, update in ipairs(updates) do
  named[#named + 1] = not update.is_default and update or nil
end
load_subjects(named)
for _, update in ipairs(named) do
  if update.subject == 't' or update.subject == 'q' then
    queue_of(update.subject == 't' and update.queue or update.name)
  end
end
local word = advance_state()
if word then
  return {word, '0'}
end
local version = entry and write_entry() or '0'
local parts = parts_of(ARGV[9])
local audit_entries = {parts[1] ~= '' and parts[1] or nil}
for number, update in ipairs(updates) do
  add_audit(audit_entries, update, parts[1 + number])
  if update.subject == 'p' and not has_pairs() then
    begin_pairs(leased_lanes())
  end
  if update.is_default then
    apply_default(update)
  else
    apply(update)
  end
end
local results, taken = '', {}
if changes[1] then
  results = settle(changes, now)
end
if job_count > 0 then
  taken = store_new_jobs(lane_names, jobs_at, now, false)
end
flush()
record_audit(audit_entries)
local told = {}
for number = #updates + 2, #parts do
  told[#told + 1], told[#told + 2] = '', parts[number]
end
record_events(told, now)
-- Workers of every queue read limits and entries again as soon as they change.
if updates[1] or entry then
  notify('*')
end
return {'ok', version, results, unpack(taken)}

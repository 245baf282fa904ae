-- Notes cancel requests and progress beside jobs that run.
--
-- needs: calls forgotten record rate limits places line events settle
-- KEYS  1: the partition
-- ARGV  1: for each annotation: session or '', whether it has progress (msgpack)
--       2: ids  3 …: for each annotation the wish that the job stops or '', and progress
-- Returns: for each annotation 1 or 0, whether the job was running (in that session)

local annotations, ids = cmsgpack.unpack(ARGV[1]), split(ARGV[2], 16)
call('HDEL', P .. ':m', '')
local leases, answer, is_asked = leases_of(ids), {}, false
for number, annotation in ipairs(annotations) do
  local lease, id = leases[number], ids[number]
  local is_heard = lease and (annotation[1] == '' or annotation[1] == lease[1])
  if is_heard then
    local wish, progress = wish_in(call('HGET', P .. ':mk', id) or '\0\0')
    if wish == '' and ARGV[1 + 2 * number] ~= '' then
      wish, is_asked = ARGV[1 + 2 * number], true
    end
    if annotation[2] then
      progress = '\1' .. ARGV[2 + 2 * number]
    end
    call('HSET', P .. ':mk', id, struct.pack('>I2', #wish) .. wish .. progress)
  end
  answer[number] = is_heard and 1 or 0
end
if is_asked then
  ring('*')
end
return answer

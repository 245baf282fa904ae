-- name: of_sessions
select s.name, l.session, l.claim, l.jobs
from session as s join lease as l on l.session = s.id where s.name = any (%(names)s::text[]);

-- name: delete
delete from lease as l using unnest(%(sessions)s::int8[], %(claims)s::int8[]) as v (session, claim)
where l.session = v.session and l.claim = v.claim;

-- name: update
update lease set jobs = %(jobs)s where session = %(session)s and claim = %(claim)s;

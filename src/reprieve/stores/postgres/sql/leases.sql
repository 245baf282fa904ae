-- name: of
select s.name, l.session, l.number, l.jobs
from session as s join lease as l on l.session = s.id where s.name = any (%(names)s::text[]);

-- name: delete
delete from lease as l using unnest(%(sessions)s::int8[], %(numbers)s::int8[]) as v (session, number)
where l.session = v.session and l.number = v.number;

-- name: update
update lease set jobs = %(jobs)s where session = %(session)s and number = %(number)s;

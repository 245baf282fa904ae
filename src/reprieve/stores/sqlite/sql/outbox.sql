-- name: send
insert into reprieve_outbox (id, record) select column1, column2 from (values {values}) where column1 is not null;

-- name: take
select seq, record from reprieve_outbox as outbox where reason is null order by seq limit ?;

-- name: remove
delete from reprieve_outbox where seq in (select value from json_each(?));

-- name: refuse
update reprieve_outbox set reason = :reason where seq = :seq;

-- name: readmit
update reprieve_outbox set reason = null where reason is not null;

-- name: holds
select 1 from reprieve_outbox where id = ?;

-- name: contents
select (select count(*) from reprieve_outbox where reason is null),
       (select id from reprieve_outbox where reason is null order by seq limit 1),
       (select count(*) from reprieve_outbox where reason is not null),
       (select reason from reprieve_outbox where reason is not null order by seq limit 1);

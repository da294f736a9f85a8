-- The ten pages that were seen most in a minute; a new minute begins every ten seconds. A minute is written again
-- whenever something of it has come (update mode), so the last record for its key is the one that counts.
SELECT
  window.start AS minute_start,
  window.end AS minute_end,
  max(at) AS seen_to,
  count(*) AS views,
  approx_count_distinct(user) AS visitors,
  transform(approx_top_k(title, 10), one -> named_struct('title', one.item, 'views', one.count)) AS top
FROM titled
GROUP BY window(at, '1 minute', '10 seconds')

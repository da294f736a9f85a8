-- Visits that are over: nothing came of them for half a minute. Each is written once (append mode).
SELECT
  session,
  user,
  session_window.start AS started,
  max(at) AS ended,
  count(*) AS views,
  min_by(page, at) AS entered_at,
  min_by(referrer, at) AS came_from,
  max_by(page, at) AS left_at
FROM views
GROUP BY session, user, session_window(at, '30 seconds')

-- Each view with the title and the section of its page, which stand in a file.
SELECT views.user, views.session, views.page, views.referrer, views.at, pages.title, pages.section
FROM views JOIN pages ON views.page = pages.page

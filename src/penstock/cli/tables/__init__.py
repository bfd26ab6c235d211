"""`penstock table`: definitions of tables, and the job that keeps one."""

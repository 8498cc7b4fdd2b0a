/*
 * http/handlers.h -- what the route table refers to: one handler per call, and the tables of their bodies.
 */
#ifndef HTTP_HANDLERS_H
#define HTTP_HANDLERS_H

#include "http/fields.h"
#include "http/request_calls.h"

/* Detail where no key signs receipts. */
#define NO_RECEIPTS "This service signs no receipts: it has no receipts.seed_file."

/* coupons.c */
handler coupon_create, coupon_list, coupon_get, coupon_change, coupon_delete, coupon_archive, coupon_counts;
/* ledger.c */
handler ledger_get;
/* coupon_history.c */
handler coupon_history;
/* slots.c */
handler slots_add, slots_list, slot_get, slots_retire;
extern const struct field_table slots_add_table, slots_retire_table;
/* jobs.c */
handler job_list, job_get, job_cancel, job_rows;
/* codes.c */
handler codes_list, code_get, code_retire;
/* code_lists.c */
handler codes_upload;
/* resolve.c */
handler code_resolve, code_find;
/* erasure.c */
handler user_erase;
/* redemptions.c */
handler redemption_take, redemption_batch, redemption_check, redemption_get, redemption_receipt, redemption_step, redemption_adjust;
/* redemption_list.c */
handler redemption_list;
/* redemption_search.c */
handler redemption_search;
/* user_export.c */
handler user_export;
/* users.c */
handler user_get, user_wallet;
/* reports.c */
handler report_get;
/* refusals.c */
handler refusals_get;
/* webhooks.c */
handler webhook_list, webhook_create, webhook_get, webhook_change, webhook_delete, webhook_rotate, webhook_deliveries,
    webhook_redeliver, webhook_test;
extern const struct field_table webhook_rotate_table;
/* keys.c */
handler key_list;
/* service.c */
handler service_health, service_ready, service_metrics, service_problem, service_receipt_keys;

#endif

//! The list of all scenarios, as tests.

/// Defines one test per scenario, in one module per theme, on the stores that `$open` creates.
#[macro_export]
macro_rules! suite {
    ($open:expr) => {
        $crate::theme!($open, priority: [
            levels_are_served_in_order_regardless_of_arrival,
            a_late_high_job_goes_before_all_waiting_jobs,
            priority_goes_before_fairness,
            a_high_head_that_waits_for_a_gate_gets_its_next_opening,
            a_blocked_high_head_lets_lower_levels_use_other_upstreams,
            a_grant_says_what_to_send_where_and_how_long,
        ]);
        $crate::theme!($open, lines: [
            a_line_is_first_in_first_out,
            one_dispatch_returns_at_most_the_requested_number_and_never_over_a_hundred,
            an_idle_lane_has_no_next_time,
            a_blocked_line_is_passed_by_lines_with_other_chains,
            the_lane_counts_what_waits_runs_and_ended,
            every_job_ends_once_and_the_counts_add_up,
            a_job_shows_its_history,
        ]);
        $crate::theme!($open, capacity: [
            a_new_low_job_is_refused_when_the_lane_is_full,
            capacity_is_the_sum_over_the_three_levels,
            a_new_high_job_evicts_from_low_first_and_then_from_normal,
            a_new_normal_job_evicts_from_low_only,
            the_newest_job_of_the_tenant_with_the_longest_backlog_is_evicted,
            a_job_that_was_tried_is_never_evicted,
            a_job_released_unsent_counts_as_untried,
            a_job_that_waits_for_the_rest_of_its_chain_protects_nobody_from_eviction,
            a_scheduled_job_takes_room_and_can_be_evicted,
            running_jobs_take_no_room,
            retries_and_lost_jobs_return_to_a_full_lane,
            bytes_are_bounded_too,
            a_refused_job_does_not_affect_the_others_of_its_batch,
        ]);
        $crate::theme!($open, ttl: [
            a_job_may_start_until_it_expires_and_not_after,
            an_expired_job_is_dropped_and_the_next_is_taken,
            a_job_that_expires_behind_open_breakers_says_which_call_was_avoided,
            a_job_with_a_day_to_live_starts_until_the_day_is_over,
            the_lane_sets_the_ttl_unless_the_job_does,
            a_job_without_a_ttl_waits_forever,
            the_sweeper_drops_expired_jobs_that_nobody_reaches_and_frees_their_room,
            a_scheduled_job_expires_before_its_time_comes,
            a_job_that_expires_while_it_runs_still_completes,
            an_expired_job_is_not_moved_on_to_another_upstream,
            a_lost_job_that_expired_meanwhile_is_dropped,
            a_clock_that_steps_back_revives_nothing,
        ]);
        $crate::theme!($open, delays: [
            a_delayed_job_is_pending_until_it_is_due,
            a_scheduled_job_queues_as_if_created_when_due,
            scheduled_jobs_queue_in_the_order_in_which_they_are_due,
            the_sweeper_queues_due_jobs,
            a_delayed_job_can_be_cancelled,
        ]);
        $crate::theme!($open, fairness: [
            tenants_get_three_jobs_in_a_row_while_others_wait,
            a_flood_does_not_delay_a_small_tenant_beyond_one_batch,
            a_single_tenant_is_not_limited_to_its_batch,
            the_least_recently_served_tenant_is_next,
            a_weight_multiplies_the_batch_of_tenants_that_fit_its_pattern,
            without_fairness_a_level_is_one_fifo,
            without_fairness_tenants_are_still_counted_separately,
            new_tenants_do_not_starve_an_old_one,
            a_tenant_whose_lines_are_blocked_keeps_its_place,
            a_line_parked_at_its_bucket_keeps_its_tenants_place,
            after_three_rounds_without_service_the_priority_is_two,
            a_tenant_that_was_never_served_counts_four_rounds,
            the_view_counts_jobs_in_a_row_and_in_total,
            the_busiest_tenants_come_with_the_one_that_is_served_next_first,
            tenants_come_in_pages,
        ]);
        $crate::theme!($open, flood: [
            no_small_tenant_waits_longer_than_one_turn_of_the_others,
            with_weights_the_bound_is_each_tenants_own,
            retries_that_return_are_within_the_bound,
            a_blocked_tenant_delays_nobody_and_is_served_within_the_bound_later,
        ]);
        $crate::theme!($open, tenant_limits: [
            a_tenant_at_its_rate_is_passed_by_others,
            why_names_the_tenant_and_the_time,
            the_most_specific_pattern_sets_the_limit,
            a_tenant_that_waited_at_its_limit_keeps_its_place,
            running_calls_of_a_tenant_are_bounded,
            a_slot_comes_back_however_the_call_ends,
            a_job_keeps_its_slot_along_the_chain,
            a_call_that_was_never_sent_gives_its_token_back,
            without_fairness_others_still_pass,
            urgent_jobs_of_a_tenant_go_first,
            a_job_that_waits_at_a_limit_expires_like_any_other,
            many_tenants_at_their_limit_do_not_block_others,
            tenant_limits_apply_to_direct_calls,
        ]);
        $crate::theme!($open, retry_budget: [
            retries_beyond_the_budget_wait_and_first_attempts_pass,
            a_share_of_the_first_attempts_may_be_retried_at_once,
            the_used_budget_returns_with_time,
            a_retry_that_waits_for_the_budget_is_no_dead_letter,
            a_tenant_whose_jobs_fail_does_not_use_up_the_budget_of_others,
            a_job_whose_worker_vanished_is_recovered_regardless_of_the_budget,
            a_retry_whose_upstream_is_closed_leaves_the_budget_to_others,
            a_retry_of_a_tenant_at_its_limit_leaves_the_budget_to_others,
            a_removed_backlog_of_retries_counts_against_nobody,
            a_retry_that_waits_for_the_budget_lets_its_equals_start,
        ]);
        $crate::theme!($open, leases: [
            a_dispatch_says_which_jobs_it_took_up,
            a_lease_is_good_for_one_settlement,
            a_stale_lease_changes_nothing_in_any_verb,
            a_lease_that_was_never_granted_is_stale,
            every_grant_has_its_own_lease,
            a_lost_workers_job_is_recovered_when_its_lease_ends,
            a_dispatch_takes_lost_jobs_up_without_a_sweeper,
            a_dispatch_says_when_running_leases_end,
            a_recovered_job_is_at_the_front_of_its_own_line_only,
            a_recovered_job_does_not_jump_another_tenants_turn,
            extending_keeps_a_lease_alive,
            an_extended_lease_ends_when_it_was_extended_to,
            a_lost_worker_leaks_no_slot,
            a_released_job_goes_back_to_the_front_and_has_spent_no_attempt,
            a_job_that_lost_ten_workers_fails,
            a_lane_that_must_not_send_twice_ends_a_lost_job,
            a_late_settlement_counts_while_nobody_took_the_job_up,
        ]);
        $crate::theme!($open, repeats: [
            a_repeated_settlement_returns_the_same_and_changes_nothing,
            a_settlement_is_remembered_until_the_next_one_of_its_job,
            a_removed_job_remembers_no_settlement,
            the_end_of_an_equal_job_is_reported_once,
            a_repeated_replay_is_the_same_job_however_it_ended,
        ]);
        $crate::theme!($open, chain: [
            a_job_goes_to_the_first_upstream_that_admits_it,
            a_failed_call_advances_to_the_next_upstream_under_the_same_lease,
            an_advance_may_be_repeated_when_the_answer_was_lost,
            advancing_does_not_extend_the_lease,
            when_all_were_tried_the_attempt_has_failed,
            the_failure_that_ends_a_chain_is_noted_once,
            a_long_history_says_how_much_it_leaves_out,
            a_settlement_after_exhaustion_reports_nothing_to_the_gates_twice,
            a_busy_upstream_is_skipped_when_advancing,
            a_job_waits_for_busy_upstreams_and_does_not_repeat_the_tried_ones,
            no_call_starts_under_an_expired_lease,
            a_job_that_waits_for_the_rest_is_ahead_of_younger_ones,
            with_all_busy_a_job_waits_in_place_and_spends_no_attempt,
            one_busy_chain_does_not_block_another,
            a_worker_lost_after_an_advance_does_not_make_the_job_repeat_the_first,
            a_worker_lost_after_the_whole_chain_failed_does_not_strand_the_job,
            a_job_released_after_the_whole_chain_failed_begins_a_new_attempt,
            a_job_released_after_an_advance_keeps_what_it_tried,
            holds_are_taken_only_at_the_upstream_they_belong_to,
            a_line_at_an_empty_bucket_goes_elsewhere_though_older_lines_wait_there,
        ]);
        $crate::theme!($open, keys: [
            the_key_with_the_fewest_calls_is_used_and_the_first_of_equal_ones,
            a_job_knows_the_upstream_and_not_the_key,
            an_advance_to_an_upstream_with_keys_names_one,
            the_upstreams_own_gates_count_the_calls_of_all_keys,
            only_the_throttled_key_rests,
            a_retry_after_closes_only_the_key_that_received_it,
            when_all_keys_deny_the_earliest_time_is_returned,
            a_breaker_counts_the_results_of_all_keys,
            an_awaited_job_keeps_the_slot_of_its_key,
            a_lost_call_frees_its_key_when_its_lease_ends,
        ]);
        $crate::theme!($open, gates: [
            a_dispatch_says_which_gate_blocks_the_lane,
            a_dispatch_blocked_by_the_lanes_own_gate_names_no_upstream,
            no_sixty_seconds_see_more_starts_than_the_window_allows,
            a_place_in_the_window_comes_free_sixty_seconds_after_the_answer,
            a_place_in_the_window_is_counted_from_when_the_answer_began,
            a_call_that_was_not_sent_gives_its_place_in_the_window_back,
            the_place_of_a_vanished_worker_comes_free_sixty_seconds_after_its_lease,
            a_failed_call_holds_its_place_and_advancing_takes_none_of_the_lane,
            fifteen_calls_at_ten_per_second_and_burst_ten_let_ten_pass,
            a_bucket_keeps_fractions_however_often_it_is_read,
            a_clock_that_steps_back_adds_no_tokens,
            a_call_that_was_not_sent_gives_its_token_back,
            a_call_whose_worker_vanished_stays_spent,
            slots_bound_the_running_calls,
            pace_lets_one_start_per_interval,
            pace_adapts_to_how_calls_end,
            pace_stays_within_its_bounds,
            an_adaptive_pace_grows_while_it_is_used_and_keeps_what_it_learned,
            an_adaptive_pace_treats_a_burst_of_refusals_as_one_signal,
            a_retry_after_closes_the_upstream_for_all_callers,
            an_earlier_retry_after_does_not_shorten_a_later_one,
            a_denied_job_takes_from_no_gate,
            a_denied_call_takes_from_no_bucket,
            a_denial_names_the_gate_that_opens_last,
            a_lane_has_its_own_window,
            a_lane_has_its_own_rate,
            a_job_that_was_not_sent_gives_the_lanes_token_back,
            a_lane_has_its_own_concurrency,
            advancing_along_the_chain_keeps_one_slot_of_the_lane,
            a_job_that_waits_for_the_rest_frees_its_slot_of_the_lane,
            an_upstream_shows_its_gates,
        ]);
        $crate::theme!($open, scoped: [
            a_retry_after_of_a_scoped_bucket_closes_only_that_bucket,
            a_line_denied_by_its_own_bucket_is_passed_by_others,
            many_lines_at_one_bucket_get_no_more_than_it_has,
            the_answer_settles_a_hold_to_its_real_cost,
            a_hold_that_cost_nothing_is_returned,
            a_large_hold_is_not_starved_by_small_ones_of_lower_levels,
            a_large_hold_is_not_starved_by_small_ones_of_tenants_that_came_later,
            a_scoped_hold_of_an_unsent_call_is_returned,
            a_scoped_hold_of_a_lost_call_stays_spent,
            a_line_continues_when_settlements_leave_enough,
            a_new_rule_applies_from_when_it_arrived,
        ]);
        $crate::theme!($open, policies: [
            the_terms_of_a_policy_decide_what_a_settlement_costs,
            what_is_held_is_not_refilled,
            all_buckets_of_a_request_are_taken_or_none,
            a_line_that_lacks_one_of_two_buckets_delays_no_other,
            an_event_returns_tokens_once_in_every_bucket,
            an_event_counts_only_for_a_while,
            a_job_earns_its_credit_too,
            a_replayed_job_is_charged_and_earns_its_credit_like_the_original,
            a_balance_is_corrected_to_what_the_upstream_counts,
            what_a_round_trip_explains_is_no_drift,
            a_balance_with_credits_is_only_lowered,
            buckets_are_found_by_policy_and_by_scope,
            the_buckets_closest_to_empty_are_found,
            a_retry_after_closes_the_narrowest_bucket,
            the_first_secret_is_kept,
            an_admission_returns_the_tightest_limit,
        ]);
        $crate::theme!($open, health: [
            failures_in_a_row_open_the_breaker,
            a_success_or_a_rejection_between_failures_keeps_the_breaker_closed,
            too_many_requests_is_no_failure_for_the_breaker,
            half_open_lets_one_probe_pass,
            half_open_lets_as_many_probes_pass_as_the_rule_says,
            a_good_probe_closes_the_breaker_and_forgets_failures,
            a_bad_probe_opens_the_breaker_again,
            a_probe_that_was_not_sent_leaves_its_place_to_another,
            a_dead_probe_does_not_keep_the_breaker_half_open_forever,
            an_extended_probe_keeps_its_place,
            late_failures_from_before_the_opening_do_not_prolong_it,
            a_late_success_from_before_the_opening_does_not_close_it,
            a_late_failure_does_not_reopen_a_breaker_that_closed,
            an_open_breaker_sends_jobs_down_the_chain,
            a_reset_closes_the_breaker_and_ends_cooldown_and_retry_after,
            a_breaker_recovers_without_a_probe_once_its_open_window_is_over,
            a_breaker_that_is_open_or_closed_does_not_recover,
            a_breaker_without_probes_is_healthy_after_five_minutes,
            callers_without_a_lease_share_the_breaker,
            a_lost_worker_does_not_count_as_a_failure_of_the_upstream,
            consecutive_errors_lengthen_the_cooldown,
            a_success_resets_the_cooldown,
            errors_are_forgotten_after_ten_minutes,
        ]);
        $crate::theme!($open, retry: [
            a_failed_attempt_waits_and_is_tried_again,
            every_attempt_counts_as_a_start_of_the_lane,
            a_retried_job_is_ahead_of_later_ones,
            others_pass_a_job_in_backoff,
            a_retry_that_would_come_too_late_ends_the_job_now_with_its_last_failure,
            a_retry_at_the_last_moment_is_still_made,
            a_retry_that_nobody_reaches_in_time_is_dropped,
            attempts_count_up_and_the_last_failure_is_the_newest,
            a_lane_may_fail_a_job_without_a_dead_letter,
        ]);
        $crate::theme!($open, dead_letters: [
            a_dead_letter_keeps_what_is_needed_to_understand_and_repeat,
            a_job_says_whether_it_has_a_dead_letter,
            a_lane_without_dead_letters_keeps_none,
            a_dead_letter_is_removed_when_it_expires,
            the_oldest_letters_over_the_cap_are_removed_and_counted,
            letters_are_listed_oldest_first_and_by_page,
            a_letter_stays_until_its_replay_succeeds,
            a_failed_replay_leaves_one_letter_with_the_new_failure,
            a_running_replay_is_not_started_twice,
            a_cancelled_replay_leaves_the_letter,
            a_replay_needs_room_in_the_lane,
            a_replay_keeps_the_level_tenant_and_chain,
            a_replay_takes_from_the_scoped_buckets_of_the_job,
            a_letter_remains_though_its_bucket_has_become_too_small,
            a_discarded_letter_is_gone,
            a_letter_discarded_during_its_replay_does_not_come_back_unless_that_fails,
            a_letter_outlives_its_job,
            a_replay_does_not_bring_back_the_old_rule_of_a_bucket,
        ]);
        $crate::theme!($open, letters: [
            letters_are_found_by_lane_tenant_code_and_age,
            letters_are_counted_by_code_tenant_and_lane,
            letters_of_the_last_day_are_counted_by_hour,
            a_lane_says_which_code_and_tenant_most_letters_have,
            matching_letters_are_discarded_by_page,
            an_edited_replay_replaces_the_payload_of_its_letter,
            a_replay_waits_as_long_as_its_letter_is_kept,
            the_end_of_a_replay_is_reported_like_that_of_the_first_job,
            a_4xx_that_the_caller_waited_for_leaves_no_letter_if_the_lane_says_so,
        ]);
        $crate::theme!($open, bulk: [
            all_matching_letters_are_sent_again_once,
            a_bulk_replay_evicts_nothing_and_continues_when_there_is_room,
            a_bulk_replay_is_paced_by_the_gates_of_the_lane,
            a_stopped_bulk_replay_starts_nothing_more,
            a_letter_that_is_replayed_already_is_left_out,
            a_count_of_idle_letters_leaves_out_those_being_replayed,
            a_replay_that_does_not_complete_counts_as_failed_and_keeps_its_letter,
            twenty_bulk_replays_are_kept_and_running_ones_are_never_removed,
        ]);
        $crate::theme!($open, redrive: [
            one_letter_goes_first_and_the_others_follow_after_its_success,
            when_the_first_fails_again_all_wait_again_and_another_goes_first,
            a_failure_among_the_followers_holds_the_rest,
            a_letter_is_redriven_up_to_its_limit,
            only_letters_with_the_listed_codes_are_redriven,
            letters_wait_while_the_breaker_is_open,
            each_chain_has_its_own_canary,
            a_replay_by_hand_does_not_count_as_a_redrive,
        ]);
        $crate::theme!($open, idempotency: [
            the_same_id_is_the_same_job,
            the_same_key_and_payload_return_the_first_job,
            the_same_key_with_another_payload_is_a_conflict,
            a_fingerprint_distinguishes_requests_instead_of_the_payload,
            another_key_is_another_job,
            a_key_lasts_a_day_though_its_job_is_removed,
            a_key_lasts_as_long_as_its_job,
            a_key_holds_when_its_job_was_dropped,
            a_refused_job_leaves_no_key,
            twins_in_one_batch_are_one_job,
        ]);
        $crate::theme!($open, cancel: [
            a_waiting_job_is_cancelled_and_never_starts,
            unknown_and_finished_jobs_cannot_be_cancelled,
            a_cancelled_running_job_is_fenced_off_at_once,
            a_cancelled_call_keeps_its_slots_until_its_worker_releases_them,
            a_cancelled_call_whose_worker_is_lost_releases_its_slots_with_its_lease,
            a_cancelled_unsent_call_returns_the_lanes_token_unless_another_was_sent,
            cancelling_a_job_parked_at_a_bucket_leaves_the_rest_of_its_line,
            matching_unfinished_jobs_are_cancelled_by_page,
            a_dry_run_cancels_nothing,
            a_paused_lane_accepts_jobs_but_starts_none,
            a_paused_lane_still_settles_expires_and_recovers_jobs,
            a_paused_lane_does_not_make_the_sweeper_spin,
            an_unknown_lane_cannot_be_paused,
        ]);
        $crate::theme!($open, retention: [
            a_lane_that_keeps_none_removes_jobs_as_they_end,
            a_job_removed_as_it_ends_is_reported_whole,
            a_kept_job_is_reported_in_short,
            a_lane_keeps_the_newest_finished_jobs,
            a_finished_job_is_kept_with_its_result_as_long_as_the_lane_says,
            waiting_and_running_jobs_are_never_removed,
        ]);
        $crate::theme!($open, why: [
            why_says_paused,
            why_says_scheduled,
            why_says_retry_backoff,
            each_job_of_a_batch_gets_its_own_position,
            why_says_behind_with_the_position,
            the_position_considers_that_tenants_take_turns,
            why_says_no_worker_when_nothing_else_blocks,
            why_says_pace,
            why_says_rate_limit,
            why_says_window,
            why_says_concurrency,
            why_says_cooldown,
            why_says_circuit_open,
            why_says_upstream_retry_after,
            why_says_awaiting_webhook,
            why_names_the_lanes_own_gate,
            why_names_the_scoped_bucket,
            why_shows_a_scoped_bucket_that_is_open,
            why_names_the_gate_of_the_chain_that_opens_first,
            why_says_that_a_job_will_expire,
            the_eta_grows_with_the_position,
            a_finished_job_waits_for_nothing,
        ]);
        $crate::theme!($open, admit: [
            a_call_without_a_job_shares_the_gates_with_jobs,
            a_call_without_a_job_holds_its_slot_until_it_is_settled,
            a_call_without_a_lease_checks_the_rate_and_not_the_breaker,
            a_call_without_a_lease_is_no_probe,
            a_call_without_a_job_whose_caller_is_lost_frees_its_slot,
            a_denial_returns_the_stores_time,
            a_call_that_nobody_settles_costs_its_token_and_nothing_else,
            a_call_without_a_job_has_no_chain_to_advance_along,
            a_call_takes_from_scoped_buckets,
            a_call_to_an_unknown_upstream_is_refused,
            a_call_to_an_unknown_upstream_still_recovers_lost_jobs,
        ]);
        $crate::theme!($open, direct: [
            a_call_counts_in_the_window_of_its_lane,
            an_unreported_call_takes_tokens_and_holds_nothing,
            a_call_that_may_not_probe_waits_until_others_have_closed_the_breaker,
            a_call_takes_from_the_bucket_of_its_lane_and_returns_the_token_if_unsent,
            a_call_that_found_no_connection_is_a_failure_and_spends_nothing,
            a_call_holds_a_slot_of_its_lane_until_it_is_settled,
            a_call_whose_caller_is_lost_frees_its_slot_of_the_lane,
            a_call_shares_the_gates_of_its_lane_with_jobs,
            a_call_goes_to_the_first_upstream_that_admits_it,
            a_call_may_name_its_own_chain,
            when_all_deny_the_one_that_opens_first_is_named,
            a_call_that_the_upstream_denies_takes_nothing_from_the_lane,
            a_call_that_advances_along_the_chain_passes_its_lane_once,
            a_call_that_the_lane_denies_takes_nothing_from_the_upstream,
            a_call_takes_only_the_holds_of_the_upstream_it_goes_to,
            a_paused_lane_denies_calls,
            a_call_in_an_unknown_lane_is_refused,
        ]);
        $crate::theme!($open, partial_sends: [
            a_retry_sends_what_is_left,
            an_advanced_job_sends_what_is_left_also_after_a_takeover,
            a_dead_letter_and_its_replay_hold_what_is_left,
            a_partial_replay_leaves_the_rest_in_its_letter,
            what_is_left_under_a_stale_lease_changes_nothing,
        ]);
        $crate::theme!($open, endings: [
            an_end_names_the_tenant_and_the_result,
            a_settlement_lists_the_jobs_it_ends_and_no_others,
            an_enqueue_lists_evicted_and_refused_jobs,
            a_sweep_lists_lost_and_expired_jobs,
            a_dispatch_lists_lost_jobs_also_of_other_lanes,
            an_admission_lists_lost_jobs,
            a_cancellation_reports_the_end,
            a_replay_that_fails_again_writes_no_second_letter,
            the_answer_of_a_failed_job_is_kept,
            the_answer_of_an_attempt_that_ends_nothing_is_dropped,
        ]);
        $crate::theme!($open, callbacks: [
            the_end_of_a_job_is_reported_by_a_separate_job,
            a_job_removed_as_it_ends_is_reported_whole,
            an_expired_or_evicted_job_is_reported_too,
            a_callback_that_fails_permanently_is_a_dead_letter,
            callbacks_without_room_are_dropped_and_reported,
            a_job_with_an_invalid_callback_is_refused,
        ]);
        $crate::theme!($open, alerts: [
            an_alert_fires_once_and_resolves_once,
            a_condition_that_comes_and_goes_changes_nothing,
            a_tenant_is_notified_only_of_its_own_alerts,
            the_share_of_dead_letters_is_measured_over_the_last_period,
            a_job_that_waits_in_its_line_for_too_long_is_an_alert,
            a_breaker_that_opens_is_an_alert_at_once,
            refused_connections_are_an_alert_for_five_minutes,
            the_process_that_finds_lost_data_raises_the_alert,
            conditions_found_by_the_evaluating_process_count_too,
            without_a_lane_for_notices_alerts_are_only_shown,
            only_the_last_alerts_that_resolved_are_kept,
        ]);
        $crate::theme!($open, schedules: [
            a_scheduled_time_is_handled_once_whichever_process_asks,
            a_future_scheduled_time_is_not_handled_early,
            a_scheduled_time_can_be_skipped_without_a_job,
            a_scheduled_time_whose_job_is_refused_is_not_handled,
            a_scheduled_time_whose_job_would_be_late_is_not_handled,
        ]);
        $crate::theme!($open, in_time: [
            a_job_that_cannot_start_before_it_expires_is_refused,
            an_urgent_job_is_in_time_where_others_are_not,
            the_refusal_is_reported_as_an_end,
            nothing_is_evicted_for_a_job_that_is_refused,
            an_open_breaker_is_waited_for_only_within_the_ttl,
            another_upstream_of_the_chain_makes_it_in_time,
            a_job_delayed_beyond_its_ttl_is_refused,
            slots_come_free_as_fast_as_they_did,
        ]);
        $crate::theme!($open, reads: [
            jobs_are_found_by_lane_tenant_and_status,
            jobs_come_in_pages,
            jobs_are_found_by_their_time_the_newest_first,
            a_job_is_found_by_the_id_its_caller_gave,
            a_wait_shows_a_job_that_ended_and_one_that_did_not_in_time,
            an_unknown_job_is_not_waited_for_unless_allowed,
            a_dead_letter_is_found_without_its_lane,
            a_lane_says_how_old_its_oldest_dead_letter_is,
            an_upstream_shows_its_breaker,
            an_upstream_shows_what_its_bucket_holds,
            an_upstream_shows_how_many_calls_began_in_the_last_minute,
            a_follower_of_a_job_gets_new_history_at_once,
        ]);
        $crate::theme!($open, awaiting: [
            an_awaiting_job_has_its_own_fence,
            an_awaiting_job_frees_the_lane_and_keeps_its_slot_at_the_upstream,
            the_place_of_an_awaiting_job_comes_free_sixty_seconds_after_the_submits_answer,
            an_awaiting_job_is_not_recovered_when_its_workers_lease_would_have_ended,
            the_timeout_ends_an_awaiting_job,
            an_awaiting_job_may_fail_and_be_tried_again,
            a_cancelled_awaiting_job_keeps_its_slot_until_the_upstream_reports,
            an_awaiting_job_does_not_expire_by_its_ttl,
        ]);
        $crate::theme!($open, completing: [
            a_job_is_found_by_its_id_at_the_upstream,
            a_report_of_the_upstream_ends_an_awaiting_job,
            a_repeated_or_foreign_report_changes_nothing,
            one_message_counts_once_also_for_a_later_attempt,
            a_report_before_the_submits_answer_counts_with_it,
            a_report_about_an_older_submit_does_not_count_for_a_new_one,
            a_report_counts_even_if_the_submits_answer_was_lost,
            a_reported_failure_advances_along_the_chain,
            a_failure_reported_only_to_the_store_advances_along_the_chain,
            an_expired_job_does_not_advance_along_the_chain,
            a_timeout_advances_along_the_chain,
            only_a_report_of_the_upstream_resets_its_errors,
            a_submit_stays_the_probe_until_the_upstream_reports,
            a_cancelled_jobs_slot_comes_free_when_the_upstream_reports,
            a_silent_upstream_is_polled_by_one_process_at_a_time,
        ]);
        $crate::theme!($open, cache: [
            a_fresh_answer_is_served_at_intake_without_a_job,
            an_answer_is_fresh_until_its_time_is_over,
            another_key_or_none_is_another_request,
            a_lane_without_a_cache_ignores_the_key,
            the_newest_answer_counts,
            only_success_is_kept,
            a_repeat_is_the_first_job_even_if_its_answer_is_kept,
            an_answer_needs_no_room_in_the_lane,
            a_scheduled_job_is_served_from_the_cache_when_it_is_due,
            a_call_that_timed_out_or_failed_ends_with_a_stale_answer,
            a_stale_answer_is_served_when_the_whole_chain_has_failed,
            a_stale_answer_replaces_a_retry,
            a_rejected_or_throttled_request_gets_no_stale_answer,
            an_expired_answer_is_not_served_for_an_error,
            without_stale_if_error_an_answer_expires_with_its_freshness,
            with_every_breaker_open_a_stale_answer_is_served_at_intake,
            with_one_breaker_closed_a_request_is_sent,
            with_every_breaker_open_waiting_jobs_end_with_a_stale_answer,
            a_sweep_serves_stale_answers_too_but_not_in_a_paused_lane,
            a_job_in_backoff_gets_a_stale_answer_when_the_breaker_opens,
            a_running_job_continues_when_the_breaker_opens,
            stale_answers_beyond_one_verbs_limit_come_with_the_next,
            answers_are_bounded_and_the_oldest_is_evicted_first,
            the_bytes_of_answers_are_bounded,
            a_sweep_removes_expired_answers_and_says_when,
        ]);
        $crate::theme!($open, codes: [
            a_code_is_counted_with_what_a_retry_did,
            success_at_another_upstream_does_not_count_for_a_code,
            a_replayed_letter_is_a_retry_of_its_code,
        ]);
        $crate::theme!($open, history: [
            jobs_are_counted_in_the_minute_of_each_event,
            waiting_jobs_are_unknown_for_minutes_without_a_process,
            a_finished_minute_stays_as_it_is,
            a_day_is_kept,
            transitions_of_gates_are_kept,
        ]);
        $crate::theme!($open, observing: [
            an_observer_gets_all_transitions_or_a_gap,
            an_unknown_cursor_is_a_gap,
        ]);
        $crate::theme!($open, coalescing: [
            equal_requests_are_sent_once_and_all_get_the_answer,
            the_line_continues_behind_a_job_that_is_set_aside,
            equal_requests_of_other_lines_levels_and_chains_are_answered_too,
            a_job_that_backs_off_is_answered_too,
            success_without_an_answer_answers_nobody_else,
            an_uncacheable_answer_is_only_for_its_own_job,
            an_awaiting_job_keeps_its_equals_waiting,
            more_equals_than_one_verb_answers_are_answered_by_the_next,
            equal_jobs_get_the_answer_though_it_is_no_longer_fresh,
            an_answer_evicted_before_all_got_it_starts_the_next,
            a_failure_starts_the_next_equal_job,
            the_most_urgent_of_those_set_aside_is_next,
            a_job_that_waits_for_a_retry_lets_the_next_start,
            a_released_lost_or_cancelled_job_lets_the_next_start,
            a_job_that_waits_for_the_rest_of_its_chain_lets_the_next_start,
            a_promoted_job_that_ends_lets_the_next_start,
            a_job_set_aside_counts_expires_and_can_be_cancelled_like_any_waiting_job,
            why_says_coalesced_and_where_the_equal_job_is,
            being_set_aside_takes_nothing_and_uses_no_turn,
            an_expired_equal_is_dropped_and_not_answered,
            a_stale_answer_for_one_job_does_not_answer_its_equals,
            a_replay_is_sent_even_if_an_answer_is_cached,
        ]);
        $crate::theme!($open, bad_input: [
            invalid_jobs_are_refused_with_their_field,
            a_job_for_an_unknown_lane_is_refused,
            an_invalid_job_does_not_affect_the_others_of_its_batch,
            a_dispatch_of_an_unknown_lane_returns_nothing,
            unknown_letters_and_jobs_are_reported_as_unknown,
            times_in_the_far_future_do_not_overflow,
        ]);
    };
}

/// Defines one test per scenario of a theme; part of [`suite!`].
#[doc(hidden)]
#[macro_export]
macro_rules! theme {
    ($open:expr, $theme:ident: [$($scenario:ident),* $(,)?]) => {
        mod $theme {
            $(
                #[test]
                fn $scenario() {
                    $crate::run($crate::scenarios::$theme::$scenario($open));
                }
            )*
        }
    };
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    /// A scenario that is not in the list would never run.
    #[test]
    fn every_scenario_is_in_the_suite() {
        let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let suite = fs::read_to_string(src.join("suite.rs")).unwrap();
        let mut found = 0;
        for file in fs::read_dir(src.join("scenarios")).unwrap() {
            let text = fs::read_to_string(file.unwrap().path()).unwrap();
            for line in text.lines().filter_map(|line| line.strip_prefix("pub async fn ")) {
                let name = line.split('<').next().unwrap();
                assert!(suite.contains(&format!(" {name},\n")), "{name} is not in suite!");
                found += 1;
            }
        }
        assert!(found > 100, "only {found} scenarios were found");
    }
}

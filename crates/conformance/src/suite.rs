//! The list of all scenarios, as tests.

/// One test for each scenario, in a module for each theme, on the stores that `$open` makes.
#[macro_export]
macro_rules! suite {
    ($open:expr) => {
        $crate::theme!($open, priority: [
            levels_are_served_in_order_whatever_came_first,
            a_high_job_that_comes_late_goes_before_all_that_wait,
            priority_goes_before_fairness,
            a_high_head_that_waits_for_a_gate_gets_its_next_opening,
            a_blocked_high_head_lets_lower_levels_use_other_upstreams,
            a_grant_says_what_to_send_where_and_how_long,
        ]);
        $crate::theme!($open, lines: [
            a_line_is_first_in_first_out,
            one_dispatch_gives_at_most_what_was_asked_and_never_over_a_hundred,
            an_idle_lane_says_that_only_an_event_can_bring_work,
            a_blocked_line_is_passed_by_lines_with_other_chains,
            the_lane_counts_what_waits_runs_and_ended,
            every_job_ends_once_and_the_counts_add_up,
            a_job_tells_its_history,
        ]);
        $crate::theme!($open, capacity: [
            a_new_low_job_is_refused_when_the_lane_is_full,
            capacity_is_the_sum_over_the_three_levels,
            a_new_high_job_evicts_from_low_first_and_then_from_normal,
            a_new_normal_job_evicts_from_low_only,
            evicted_is_the_newest_job_of_the_tenant_with_the_longest_backlog,
            a_job_that_was_tried_is_never_evicted,
            a_job_that_was_given_back_unsent_counts_as_untried,
            one_that_waits_for_the_rest_of_its_chain_hides_nobody_from_eviction,
            a_scheduled_job_takes_room_and_can_be_evicted,
            running_jobs_take_no_room,
            retries_and_lost_jobs_come_back_into_a_full_lane,
            bytes_are_bounded_too,
            one_refused_job_does_not_hinder_the_others_of_its_batch,
        ]);
        $crate::theme!($open, ttl: [
            a_job_may_start_until_its_last_moment_and_not_after_it,
            an_expired_job_is_dropped_and_the_next_is_taken,
            a_job_that_expires_behind_open_breakers_says_which_call_was_avoided,
            a_job_with_a_day_to_live_starts_until_the_day_is_over,
            the_lane_sets_the_ttl_unless_the_job_does,
            a_job_without_a_ttl_waits_for_ever,
            the_sweeper_drops_expired_jobs_that_nobody_reaches_and_frees_their_room,
            a_scheduled_job_expires_before_its_time_comes,
            a_job_that_expires_while_it_runs_still_completes,
            an_expired_job_is_not_moved_on_to_another_upstream,
            a_lost_job_that_expired_meanwhile_is_dropped,
            a_clock_that_steps_back_revives_nothing,
        ]);
        $crate::theme!($open, schedule: [
            a_delayed_job_is_pending_until_it_is_due,
            a_scheduled_job_lines_up_as_if_it_came_when_it_is_due,
            scheduled_jobs_line_up_in_the_order_in_which_they_are_due,
            the_sweeper_lets_due_jobs_in,
            a_delayed_job_can_be_cancelled,
        ]);
        $crate::theme!($open, fairness: [
            tenants_get_three_jobs_in_a_row_while_others_wait,
            a_flood_does_not_delay_a_small_tenant_beyond_one_batch,
            a_tenant_alone_is_not_held_to_its_batch,
            the_least_recently_served_tenant_is_next,
            a_weight_multiplies_the_batch_of_tenants_that_fit_its_pattern,
            without_fairness_a_level_is_one_fifo,
            without_fairness_tenants_are_still_told_apart,
            new_tenants_do_not_starve_an_old_one,
            a_tenant_whose_lines_are_blocked_keeps_its_place,
            a_line_parked_at_its_bucket_keeps_its_tenants_place,
            after_three_rounds_without_service_the_priority_is_two,
            a_tenant_that_was_never_served_counts_four_rounds,
            the_view_counts_jobs_in_a_row_and_in_all,
        ]);
        $crate::theme!($open, flood: [
            no_small_tenant_waits_longer_than_one_turn_of_the_others,
            with_weights_the_bound_is_each_tenants_own,
            retries_that_return_are_within_the_bound,
            a_blocked_tenant_holds_nobody_up_and_is_served_within_the_bound_later,
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
            of_one_tenant_the_urgent_go_first,
            a_job_that_waits_at_a_limit_expires_as_any,
            many_tenants_at_their_limit_hide_nobody,
            direct_calls_fall_under_the_limits_of_their_tenant,
        ]);
        $crate::theme!($open, retry_budget: [
            retries_beyond_the_budget_wait_and_first_attempts_pass,
            a_share_of_the_first_attempts_may_be_retried_at_once,
            what_is_used_of_the_budget_comes_back_with_time_alone,
            a_retry_that_waits_for_the_budget_is_no_dead_letter,
            a_tenant_whose_jobs_fail_does_not_use_up_the_budget_of_others,
            a_job_whose_worker_vanished_is_taken_up_whatever_is_left,
            a_retry_whose_upstream_is_closed_leaves_the_budget_to_others,
            a_retry_of_a_tenant_at_its_limit_leaves_the_budget_to_others,
            a_backlog_of_retries_that_is_gone_counts_against_nobody,
            a_retry_that_the_budget_holds_back_lets_its_equals_go,
        ]);
        $crate::theme!($open, leases: [
            a_dispatch_says_which_jobs_it_took_up,
            a_lease_is_good_for_one_settlement,
            a_stale_lease_changes_nothing_in_any_verb,
            a_lease_that_was_never_given_is_stale,
            every_grant_has_a_lease_of_its_own,
            a_lost_workers_job_is_taken_up_when_its_lease_ends,
            a_dispatch_takes_lost_jobs_up_without_a_sweeper,
            a_dispatch_says_when_running_leases_end,
            a_taken_up_job_stands_at_the_front_of_its_own_line_only,
            a_taken_up_job_does_not_jump_another_tenants_turn,
            extending_keeps_a_lease_alive,
            an_extended_lease_ends_when_it_was_extended_to,
            a_lost_worker_leaks_no_slot,
            a_released_job_goes_back_to_the_front_and_has_spent_no_attempt,
            a_job_that_ten_workers_vanished_with_is_given_up,
            a_lane_that_must_not_send_twice_ends_a_lost_job,
            a_late_settlement_counts_while_nobody_took_the_job_up,
        ]);
        $crate::theme!($open, repeats: [
            a_repeated_settlement_answers_the_same_and_changes_nothing,
            a_settlement_is_remembered_until_the_next_one_of_its_job,
            a_job_that_was_forgotten_remembers_no_settlement,
            the_end_of_an_equal_job_is_told_once,
            a_repeated_replay_is_the_same_job_whatever_became_of_it,
        ]);
        $crate::theme!($open, chain: [
            a_job_goes_to_the_first_upstream_that_admits_it,
            a_failed_call_goes_on_to_the_next_upstream_under_the_same_lease,
            going_on_may_be_asked_again_when_the_answer_was_lost,
            going_on_does_not_prolong_the_lease,
            when_all_were_tried_the_attempt_has_failed,
            the_failure_that_ends_a_chain_is_noted_once,
            a_long_history_says_how_much_it_leaves_out,
            a_settlement_after_exhaustion_tells_the_gates_nothing_twice,
            a_busy_upstream_is_skipped_when_going_on,
            with_the_rest_busy_a_job_waits_for_it_and_does_not_repeat_the_tried_ones,
            no_call_starts_under_an_expired_lease,
            a_job_that_waits_for_the_rest_stands_before_younger_ones,
            with_all_busy_a_job_waits_in_place_and_spends_no_attempt,
            one_busy_chain_does_not_block_another,
            a_worker_lost_after_going_on_does_not_make_the_job_repeat_the_first,
            a_worker_lost_after_the_whole_chain_failed_does_not_strand_the_job,
            a_job_released_after_the_whole_chain_failed_begins_a_new_attempt,
            a_job_released_after_going_on_keeps_what_it_tried,
            holds_are_taken_only_at_the_upstream_they_belong_to,
            a_line_at_an_empty_bucket_goes_elsewhere_though_older_lines_wait_there,
        ]);
        $crate::theme!($open, keys: [
            the_key_with_the_fewest_calls_is_taken_and_of_equals_the_first,
            a_job_knows_the_upstream_and_not_the_key,
            going_on_to_an_upstream_with_keys_names_one,
            the_upstreams_own_gates_count_the_calls_of_all_keys,
            a_throttled_key_rests_alone,
            a_retry_after_closes_the_key_it_was_said_to,
            when_all_keys_deny_the_earliest_is_told,
            a_breaker_counts_what_all_keys_tell,
            an_awaited_job_keeps_the_slot_of_its_key,
            a_lost_call_frees_its_key_when_its_lease_ends,
        ]);
        $crate::theme!($open, gates: [
            a_dispatch_says_which_gate_held_the_lane_back,
            a_dispatch_that_the_lanes_own_gate_held_back_names_no_upstream,
            no_sixty_seconds_see_more_starts_than_the_window_allows,
            a_place_in_the_window_comes_free_sixty_seconds_after_the_answer,
            a_call_that_was_not_sent_gives_its_place_in_the_window_back,
            the_place_of_a_vanished_worker_comes_free_sixty_seconds_after_its_lease,
            a_failed_call_holds_its_place_and_going_on_takes_none_of_the_lane,
            fifteen_calls_at_ten_per_second_and_burst_ten_let_ten_pass,
            a_bucket_keeps_fractions_however_often_it_is_looked_at,
            a_clock_that_steps_back_mints_no_tokens,
            a_call_that_was_not_sent_gives_its_token_back,
            a_call_whose_worker_vanished_stays_spent,
            slots_bound_the_calls_under_way,
            pace_lets_one_start_per_interval,
            pace_adapts_to_how_calls_end,
            pace_stays_within_its_bounds,
            an_adaptive_pace_grows_while_it_is_used_and_keeps_what_it_learned,
            an_adaptive_pace_takes_one_burst_of_refusals_for_one_signal,
            a_retry_after_closes_the_upstream_for_everybody,
            an_earlier_retry_after_does_not_shorten_a_later_one,
            a_denied_job_takes_from_no_gate,
            a_denied_call_takes_from_no_bucket,
            a_denial_names_the_gate_that_opens_last,
            a_lane_has_a_window_of_its_own,
            a_lane_has_a_rate_of_its_own,
            a_job_that_was_not_sent_gives_the_lanes_token_back,
            a_lane_has_a_concurrency_of_its_own,
            going_on_along_the_chain_keeps_one_slot_of_the_lane,
            a_job_that_waits_for_the_rest_frees_its_slot_of_the_lane,
            an_upstream_shows_its_gates,
        ]);
        $crate::theme!($open, scoped: [
            a_retry_after_of_a_scoped_bucket_closes_only_that_bucket,
            a_line_denied_by_its_own_bucket_is_passed_by_others,
            many_lines_at_one_bucket_get_what_it_gives_and_no_more,
            the_answer_settles_a_hold_to_its_real_cost,
            a_hold_that_cost_nothing_comes_back,
            a_large_hold_is_not_starved_by_small_ones_of_lower_levels,
            a_large_hold_is_not_starved_by_small_ones_of_tenants_that_came_later,
            a_scoped_hold_of_an_unsent_call_comes_back,
            a_scoped_hold_of_a_lost_call_stays_spent,
            a_line_goes_on_when_there_is_enough_after_others_were_settled,
            a_new_rule_counts_from_when_it_came,
        ]);
        $crate::theme!($open, policies: [
            the_terms_of_a_policy_charge_whatever_the_settler_tells,
            what_is_held_is_not_refilled,
            all_buckets_of_a_request_are_taken_or_none,
            a_line_that_lacks_one_of_two_buckets_holds_up_no_other,
            an_event_gives_tokens_back_once_in_every_bucket,
            an_event_counts_only_for_a_while,
            a_job_earns_its_credit_too,
            a_replayed_job_is_charged_and_earns_its_credit_as_it_would_have,
            a_balance_is_corrected_to_what_the_upstream_counts,
            what_a_round_trip_explains_is_no_drift,
            where_events_earn_tokens_back_a_balance_is_only_lowered,
            buckets_are_found_by_policy_and_by_scope,
            the_upstreams_word_to_stay_away_closes_the_narrowest_bucket,
            the_first_secret_is_kept,
            an_admission_tells_the_limit_that_is_nearest_to_its_end,
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
            a_dead_probe_does_not_keep_the_breaker_half_open_for_ever,
            an_extended_probe_keeps_its_place,
            late_failures_from_before_the_opening_do_not_prolong_it,
            a_late_success_from_before_the_opening_does_not_close_it,
            a_late_failure_does_not_reopen_a_breaker_that_closed,
            an_open_breaker_sends_jobs_down_the_chain,
            a_reset_closes_the_breaker_and_ends_rests_and_closures,
            a_breaker_recovers_without_a_probe_once_its_open_window_is_over,
            a_breaker_that_is_open_or_closed_does_not_recover,
            a_breaker_that_nobody_probes_is_healthy_after_five_minutes,
            callers_without_a_lease_share_the_breaker,
            a_lost_worker_is_no_failure_of_the_upstream,
            errors_in_a_row_climb_the_ladder_of_rests,
            a_success_sends_the_ladder_back_to_its_foot,
            errors_are_forgotten_after_ten_minutes,
        ]);
        $crate::theme!($open, retry: [
            a_failed_attempt_waits_and_is_tried_again,
            every_attempt_counts_as_a_start_of_the_lane,
            a_retried_job_stands_before_those_that_came_after_it,
            others_pass_while_a_job_backs_off,
            a_retry_that_would_come_too_late_ends_the_job_now_with_its_last_failure,
            a_retry_at_the_last_moment_is_still_made,
            a_retry_that_nobody_reaches_in_time_is_dropped,
            attempts_count_up_and_the_last_failure_is_the_newest,
            a_lane_may_fail_a_job_without_a_dead_letter,
        ]);
        $crate::theme!($open, dead_letters: [
            a_dead_letter_keeps_what_is_needed_to_understand_and_repeat,
            a_lane_without_dead_letters_keeps_none,
            a_dead_letter_goes_when_its_time_is_over,
            the_oldest_letters_over_the_cap_go_and_are_counted,
            letters_are_listed_oldest_first_and_by_page,
            a_letter_stays_until_its_replay_succeeds,
            a_replay_that_fails_leaves_one_letter_which_knows,
            a_replay_under_way_is_not_doubled,
            a_cancelled_replay_leaves_the_letter,
            a_replay_needs_room_in_the_lane,
            a_replay_keeps_the_level_tenant_and_chain,
            a_replay_takes_from_the_scoped_buckets_of_the_job,
            a_letter_is_there_though_its_bucket_has_become_too_small,
            a_discarded_letter_is_gone,
            a_letter_discarded_during_its_replay_does_not_come_back_unless_that_fails,
            a_letter_outlives_the_memory_of_its_job,
            a_replay_does_not_bring_back_the_old_rule_of_a_bucket,
        ]);
        $crate::theme!($open, letters: [
            letters_are_found_by_lane_tenant_code_and_age,
            letters_are_counted_by_code_tenant_and_lane,
            letters_that_fit_are_discarded_by_page,
            an_edited_replay_sends_something_else_and_the_letter_becomes_that,
            a_replay_waits_as_long_as_its_letter_is_kept,
            the_end_of_a_replay_is_told_as_that_of_the_first_job,
            a_refusal_that_was_waited_for_is_an_answer_where_the_lane_says_so,
        ]);
        $crate::theme!($open, bulk: [
            all_letters_that_fit_are_sent_again_once,
            a_bulk_replay_evicts_nothing_and_goes_on_when_there_is_room,
            a_bulk_replay_is_paced_by_the_gates_of_the_lane,
            a_stopped_bulk_replay_starts_no_more,
            a_letter_that_is_replayed_already_is_left_out,
            letters_that_are_being_replayed_are_left_out_of_a_count_of_idle_ones,
            a_replay_that_ends_otherwise_counts_as_failed_and_keeps_its_letter,
            twenty_bulk_replays_are_remembered_and_none_that_runs_is_forgotten,
        ]);
        $crate::theme!($open, redrive: [
            one_letter_goes_first_and_the_others_follow_its_success,
            when_the_first_fails_again_all_wait_again_and_another_goes_first,
            one_that_fails_among_those_that_follow_holds_the_rest,
            a_letter_is_sent_again_so_often_and_no_more,
            only_letters_with_these_codes_go,
            letters_wait_while_the_breaker_is_open,
            each_chain_has_a_canary_of_its_own,
            a_replay_by_hand_does_not_count_as_a_redrive,
        ]);
        $crate::theme!($open, idempotency: [
            the_same_id_is_the_same_job,
            the_same_key_and_payload_give_the_first_job_back,
            the_same_key_with_another_payload_is_a_conflict,
            a_fingerprint_tells_requests_apart_instead_of_the_payload,
            another_key_is_another_job,
            a_key_lasts_a_day_though_its_job_is_forgotten,
            a_key_lasts_as_long_as_its_job,
            a_key_holds_when_its_job_was_dropped,
            a_refused_job_leaves_no_key,
            twins_in_one_batch_are_one_job,
        ]);
        $crate::theme!($open, cancel: [
            a_waiting_job_is_cancelled_and_never_starts,
            what_is_unknown_or_over_cannot_be_cancelled,
            a_cancelled_running_job_is_fenced_off_at_once,
            a_cancelled_call_keeps_its_slots_until_its_worker_gives_them_back,
            a_cancelled_call_whose_worker_is_lost_gives_its_slots_back_with_its_lease,
            a_cancelled_call_that_was_not_sent_gives_the_lanes_token_back_unless_another_was,
            cancelling_a_job_parked_at_a_bucket_leaves_the_rest_of_its_line,
            what_fits_and_has_not_ended_is_cancelled_by_page,
            a_dry_run_cancels_nothing,
            a_paused_lane_takes_in_but_gives_nothing_out,
            a_paused_lane_settles_expires_and_takes_up_as_ever,
            a_paused_lane_does_not_make_the_sweeper_spin,
            an_unknown_lane_cannot_be_paused,
        ]);
        $crate::theme!($open, retention: [
            a_lane_that_keeps_none_forgets_jobs_as_they_end,
            a_job_that_is_forgotten_as_it_ends_is_told_whole,
            a_job_that_is_kept_is_only_told_in_short,
            a_lane_keeps_the_newest_finished_jobs,
            a_finished_job_is_kept_with_its_result_as_long_as_the_lane_says,
            waiting_and_running_jobs_are_never_forgotten,
        ]);
        $crate::theme!($open, why: [
            it_says_paused,
            it_says_scheduled,
            it_says_retry_backoff,
            each_job_of_a_batch_is_told_its_place,
            it_says_behind_with_the_place,
            the_place_knows_that_tenants_take_turns,
            it_says_no_worker_when_nothing_else_is_in_the_way,
            it_says_pace,
            it_says_rate_limit,
            it_says_window,
            it_says_concurrency,
            it_says_cooldown,
            it_says_circuit_open,
            it_says_upstream_retry_after,
            it_says_awaiting_webhook,
            it_names_the_lanes_own_gate,
            it_names_the_scoped_bucket,
            it_names_the_gate_of_the_chain_that_opens_first,
            it_tells_that_a_job_will_expire,
            the_eta_grows_with_the_place,
            what_is_over_waits_for_nothing,
        ]);
        $crate::theme!($open, admit: [
            a_call_without_a_job_shares_the_gates_with_jobs,
            a_call_without_a_job_holds_its_slot_until_it_is_settled,
            leave_without_a_lease_asks_the_rate_and_not_the_breaker,
            leave_without_a_lease_is_no_probe,
            a_call_without_a_job_whose_caller_is_lost_frees_its_slot,
            a_denial_says_what_time_it_is_in_the_store,
            a_call_that_nobody_settles_costs_its_token_and_nothing_else,
            a_call_without_a_job_has_no_chain_to_go_on_along,
            a_call_takes_from_scoped_buckets,
            a_call_to_an_unknown_upstream_is_told_so,
            a_call_to_nowhere_takes_up_lost_jobs_like_any_other,
        ]);
        $crate::theme!($open, direct: [
            a_call_counts_in_the_window_of_its_lane,
            a_call_that_nobody_will_tell_of_takes_tokens_and_holds_nothing,
            a_call_that_nobody_will_tell_of_waits_until_others_have_closed_the_breaker,
            a_call_takes_from_the_bucket_of_its_lane_and_gives_back_what_it_did_not_send,
            a_call_that_found_no_connection_is_a_failure_and_spends_nothing,
            a_call_holds_a_slot_of_its_lane_until_it_is_settled,
            a_call_whose_caller_is_lost_frees_its_slot_of_the_lane,
            a_call_shares_the_gates_of_its_lane_with_jobs,
            a_call_goes_to_the_first_upstream_that_admits_it,
            a_call_may_name_its_own_chain,
            when_all_deny_the_one_that_opens_first_is_told,
            a_call_that_the_upstream_denies_takes_nothing_from_the_lane,
            a_call_that_goes_on_along_the_chain_passes_its_lane_once,
            a_call_that_the_lane_denies_takes_nothing_from_the_upstream,
            a_call_takes_only_the_holds_of_the_upstream_it_goes_to,
            a_paused_lane_denies_calls,
            a_call_in_an_unknown_lane_is_told_so,
        ]);
        $crate::theme!($open, left: [
            a_retry_sends_what_is_left,
            a_job_that_moves_on_is_what_is_left_also_after_a_takeover,
            a_dead_letter_is_what_is_left_and_so_is_its_replay,
            a_replay_that_does_a_part_leaves_the_rest_in_its_letter,
            what_is_left_under_a_stale_lease_changes_nothing,
        ]);
        $crate::theme!($open, endings: [
            an_end_says_whose_job_it_was_and_how_it_went,
            a_settlement_lists_the_jobs_it_ends_and_no_others,
            an_enqueue_lists_evicted_and_refused_jobs,
            a_sweep_lists_lost_and_expired_jobs,
            a_dispatch_lists_lost_jobs_also_of_other_lanes,
            an_admission_lists_lost_jobs,
            a_cancellation_tells_the_end,
            a_replay_that_fails_again_writes_no_second_letter,
            the_answer_of_a_job_that_failed_is_kept,
            the_answer_of_an_attempt_that_ends_nothing_is_dropped,
        ]);
        $crate::theme!($open, callbacks: [
            the_end_of_a_job_is_told_by_a_job_of_its_own,
            a_job_that_is_forgotten_as_it_ends_is_told_whole,
            a_job_that_expires_or_is_pushed_out_is_told_too,
            a_callback_that_fails_for_good_is_a_dead_letter,
            callbacks_that_find_no_room_are_dropped_and_told_so,
            who_cannot_be_called_back_is_refused,
        ]);
        $crate::theme!($open, alerts: [
            an_alert_fires_once_and_resolves_once,
            a_condition_that_comes_and_goes_changes_nothing,
            a_tenant_is_notified_of_nothing_but_its_own,
            a_share_of_dead_letters_is_one_of_the_last_time,
            a_job_that_waits_in_its_line_for_too_long_is_an_alert,
            a_breaker_that_opens_is_an_alert_at_once,
            refused_connections_are_an_alert_for_five_minutes,
            whoever_finds_that_data_was_lost_raises_the_alert,
            what_the_evaluating_process_saw_counts_as_well,
            without_a_lane_for_notices_alerts_are_only_shown,
            only_the_last_alerts_that_resolved_are_kept,
        ]);
        $crate::theme!($open, moments: [
            a_moment_is_done_once_whoever_asks_first,
            a_moment_that_is_to_come_is_not_done_early,
            a_moment_can_be_passed_over_without_a_job,
            a_moment_whose_job_is_refused_is_not_done,
            a_moment_whose_job_would_be_late_is_not_done,
        ]);
        $crate::theme!($open, in_time: [
            a_job_that_cannot_start_before_it_expires_is_refused,
            what_is_urgent_is_in_time_where_the_rest_is_not,
            the_refusal_is_told_as_an_end,
            nothing_is_evicted_for_a_job_that_is_refused,
            an_open_breaker_is_waited_for_only_within_the_ttl,
            another_upstream_of_the_chain_makes_it_in_time,
            a_job_that_is_held_back_beyond_its_ttl_is_refused,
            slots_come_free_as_fast_as_they_did,
        ]);
        $crate::theme!($open, looking: [
            jobs_are_found_by_lane_tenant_and_status,
            jobs_come_in_pages,
            jobs_are_found_by_their_time_the_newest_first,
            a_job_is_found_by_the_id_its_caller_gave,
            a_wait_shows_a_job_that_ended_and_one_that_did_not_in_time,
            an_unknown_job_is_not_waited_for_unless_it_is_coming,
            a_dead_letter_is_found_without_its_lane,
            a_lane_says_how_old_its_oldest_dead_letter_is,
            an_upstream_shows_its_breaker,
            an_upstream_shows_what_its_bucket_holds,
            an_upstream_shows_how_many_calls_began_in_the_last_minute,
            who_follows_a_job_is_told_what_is_new_at_once,
        ]);
        $crate::theme!($open, awaiting: [
            an_awaiting_job_has_a_fence_of_its_own,
            an_awaiting_job_frees_the_lane_and_keeps_its_slot_at_the_upstream,
            the_place_of_an_awaiting_job_comes_free_sixty_seconds_after_the_submits_answer,
            an_awaiting_job_is_not_taken_up_when_its_workers_lease_would_have_ended,
            the_timeout_ends_an_awaiting_job,
            an_awaiting_job_may_fail_and_be_tried_again,
            a_cancelled_awaiting_job_keeps_its_slot_until_the_upstream_tells,
            an_awaiting_job_does_not_expire_by_its_ttl,
        ]);
        $crate::theme!($open, completing: [
            a_job_is_found_by_what_its_upstream_calls_it,
            what_the_upstream_tells_ends_an_awaiting_job,
            what_is_told_again_or_of_another_changes_nothing,
            one_message_counts_once_also_for_a_later_attempt,
            what_is_told_before_the_submits_answer_counts_with_it,
            what_was_told_of_an_older_submit_does_not_count_for_a_new_one,
            what_was_told_counts_also_where_the_submits_answer_was_lost,
            a_failure_goes_on_along_the_chain,
            a_failure_told_to_nobody_but_the_store_goes_on_along_the_chain,
            an_expired_job_does_not_go_on_along_the_chain,
            a_timeout_goes_on_along_the_chain,
            only_what_the_upstream_tells_resets_its_errors,
            a_submit_stays_the_probe_until_the_upstream_tells,
            a_cancelled_jobs_slot_comes_free_when_the_upstream_tells,
            an_upstream_that_does_not_tell_is_asked_by_one_at_a_time,
        ]);
        $crate::theme!($open, cache: [
            a_fresh_answer_is_given_at_intake_and_no_job_is_made,
            an_answer_is_fresh_until_its_time_is_over,
            another_key_or_none_is_another_request,
            a_lane_without_a_cache_ignores_the_key,
            the_newest_answer_counts,
            only_success_is_kept,
            a_repeat_is_the_first_job_even_if_its_answer_is_kept,
            an_answer_needs_no_room_in_the_lane,
            a_job_that_is_due_later_gets_the_answer_of_then_without_a_call,
            a_call_that_timed_out_or_failed_ends_with_an_old_answer,
            an_old_answer_is_given_when_the_whole_chain_has_failed,
            a_retry_is_not_needed_where_an_old_answer_is,
            a_request_that_is_refused_or_comes_too_often_gets_no_old_answer,
            an_answer_that_is_too_old_is_not_given_for_an_error,
            without_time_for_errors_an_answer_ends_with_its_freshness,
            with_every_breaker_open_an_old_answer_is_given_at_intake,
            with_one_breaker_closed_a_request_is_sent,
            with_every_breaker_open_waiting_jobs_end_with_an_old_answer,
            a_sweep_gives_old_answers_too_but_not_in_a_paused_lane,
            a_job_that_backs_off_gets_an_old_answer_when_the_breaker_opens,
            a_job_under_way_is_left_to_its_call_when_the_breaker_opens,
            more_old_answers_than_one_verb_gives_come_with_the_next,
            answers_are_bounded_and_the_first_stored_goes_first,
            the_bytes_of_answers_are_bounded,
            a_sweep_forgets_answers_of_no_more_use_and_says_when,
        ]);
        $crate::theme!($open, codes: [
            a_code_is_counted_with_what_a_retry_did,
            another_upstream_cures_no_code,
            a_replayed_letter_is_a_retry_of_its_code,
        ]);
        $crate::theme!($open, coalescing: [
            equal_requests_are_sent_once_and_all_get_the_answer,
            the_line_goes_on_behind_a_job_that_is_set_aside,
            equal_requests_of_other_lines_levels_and_chains_are_answered_too,
            a_job_that_backs_off_is_answered_too,
            success_without_an_answer_answers_nobody_else,
            an_answer_that_is_not_to_be_cached_is_for_its_job_alone,
            a_job_that_is_awaited_keeps_its_equals_waiting,
            more_equals_than_one_verb_answers_are_answered_by_the_next,
            what_is_owed_is_given_though_the_answer_is_no_longer_fresh,
            an_answer_that_had_to_go_before_all_got_it_lets_the_next_go,
            failure_lets_the_next_go,
            the_most_urgent_of_those_set_aside_is_next,
            a_retried_job_lets_the_next_go_meanwhile,
            a_released_lost_or_cancelled_job_lets_the_next_go,
            one_that_waits_for_the_rest_of_its_chain_lets_the_next_go,
            a_promoted_job_that_goes_lets_the_next_go,
            a_job_set_aside_counts_expires_and_can_be_cancelled_like_any_waiting_job,
            it_says_coalesced_and_where_the_equal_one_is,
            being_set_aside_takes_nothing_and_is_nobodys_turn,
            an_expired_equal_is_dropped_and_not_answered,
            an_old_answer_for_one_does_not_answer_its_equals,
            a_replay_is_sent_whatever_was_answered_to_others,
        ]);
        $crate::theme!($open, bad_input: [
            jobs_that_cannot_be_are_refused_by_field,
            a_job_for_an_unknown_lane_is_told_so,
            one_bad_job_does_not_hinder_the_others_of_its_batch,
            an_unknown_lane_gives_nothing,
            unknown_letters_and_jobs_are_told_so,
            no_time_is_too_far_to_be_counted,
        ]);
    };
}

/// One test for each scenario of a theme; a part of [`suite!`].
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

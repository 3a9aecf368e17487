//! Conditions that the engine itself detects.

use super::super::Engine;
use super::AlertMeters;
use crate::alert::{AlertKey, AlertLimits, AlertRule, Condition, Evaluation, Severity};
use crate::gate::BreakerState;
use crate::ids::Name;
use crate::time::{Span, Time};

/// One unit of a counted value; alert values are in millionths.
const ONE: u64 = 1_000_000;
/// Tenants per lane that are reported separately: those with the most dead letters.
const MAX_TENANTS: usize = 100;
/// How long an alert about rejected connections lasts after the last one.
const REJECTED_FOR: Span = Span::from_secs(300);
/// How long an alert about lost data lasts.
const LOST_FOR: Span = Span::from_secs(3_600);
/// The wait of a job is known to within the allowed wait divided by this.
const STEPS: u64 = 20;

fn condition(key: AlertKey, value: u64, threshold: u64) -> Condition {
    let (value_micros, threshold_micros) = (value.saturating_mul(ONE), threshold.saturating_mul(ONE));
    Condition { key, value_micros, threshold_micros }
}

fn of_lane(rule: AlertRule, lane: &Name) -> AlertKey {
    AlertKey { lane: Some(lane.clone()), ..AlertKey::new(rule, Severity::Warning) }
}

impl Engine {
    /// All values beyond their threshold now.
    pub(super) fn conditions(&mut self, evaluation: &Evaluation, now: Time) -> Vec<Condition> {
        let limits = &evaluation.limits;
        let mut found = self.dead_letters_beyond(limits);
        for lane in 0..self.lanes.len() {
            found.extend(self.lane_conditions(lane, limits, now));
        }
        if limits.breaker_open {
            found.extend(self.breakers_not_closed(now));
        }
        self.count_rejected(evaluation.rejected_connections, now);
        let AlertMeters { rejected_at, newly_rejected, lost_at, .. } = self.alerts.meters;
        let recent = |at: Option<Time>, span| at.is_some_and(|at| now.since(at) < span);
        if limits.redis_rejected_connections && recent(rejected_at, REJECTED_FOR) {
            let key = AlertKey::new(AlertRule::RedisRejectedConnections, Severity::Critical);
            found.push(condition(key, newly_rejected, 0));
        }
        if limits.store_lost_data && recent(lost_at, LOST_FOR) {
            found.push(condition(AlertKey::new(AlertRule::StoreLostData, Severity::Critical), 1, 0));
        }
        found
    }

    fn dead_letters_beyond(&self, limits: &AlertLimits) -> Vec<Condition> {
        let mut found = Vec::new();
        for lane in &self.lanes {
            let letters = lane.dead.len() as u64;
            if let Some(max) = limits.dead_letters.filter(|max| letters > *max) {
                found.push(condition(of_lane(AlertRule::DeadLetters, &lane.name), letters, max));
            }
            // If the lane has no more letters than this, neither has any tenant.
            if let Some(max) = limits.tenant_dead_letters.filter(|max| letters > *max) {
                let mut tenants: Vec<_> = lane.dead.by_tenant().filter(|(_, count)| *count > max).collect();
                tenants.sort_by(|one, other| other.1.cmp(&one.1).then_with(|| one.0.cmp(other.0)));
                for (tenant, count) in tenants.into_iter().take(MAX_TENANTS) {
                    let key = of_lane(AlertRule::TenantDeadLetters, &lane.name);
                    found.push(condition(AlertKey { tenant: Some(tenant.clone()), ..key }, count, max));
                }
            }
        }
        found
    }

    /// The dead-letter rate, and the wait of the oldest job.
    fn lane_conditions(&mut self, number: usize, limits: &AlertLimits, now: Time) -> Vec<Condition> {
        let (lane, at) = (&self.lanes[number], u32::try_from(number).unwrap_or(u32::MAX));
        let before = self.alerts.histories.get(&at).cloned().unwrap_or_default();
        let (mut history, mut found) = (before.clone(), Vec::new());
        match limits.dead_letter_rate {
            Some(rate) => {
                let (ended, dead) = history.ended(&lane.totals, rate.over, now);
                let share = u128::from(dead) * u128::from(ONE) / u128::from(ended.max(1));
                let beyond =
                    u128::from(dead) * u128::from(ONE) > u128::from(rate.share_micros) * u128::from(ended);
                if ended >= rate.min && beyond {
                    found.push(Condition {
                        key: of_lane(AlertRule::DeadLetterRate, &lane.name),
                        value_micros: u64::try_from(share).unwrap_or(u64::MAX),
                        threshold_micros: rate.share_micros,
                    });
                }
            }
            None => history.ends.clear(),
        }
        match limits.oldest_wait {
            Some(most) => {
                let step = Span::from_millis(most.as_millis() / STEPS);
                let waited = history.waited(lane.oldest_in_line(), lane.next_seq, step, now);
                if waited > most {
                    found.push(Condition {
                        key: of_lane(AlertRule::OldestWait, &lane.name),
                        value_micros: waited.as_millis().saturating_mul(1_000),
                        threshold_micros: most.as_millis().saturating_mul(1_000),
                    });
                }
            }
            None => history.marks.clear(),
        }
        if history != before {
            self.alerts.restore_history(at, history);
            self.alerts.unsaved.histories.insert(at);
        }
        found
    }

    fn breakers_not_closed(&self, now: Time) -> Vec<Condition> {
        let upstreams = self.upstreams.iter().filter(|upstream| upstream.key_of.is_none() && !upstream.gone);
        let not_closed = upstreams.filter_map(|upstream| {
            let breaker = upstream.gates.breaker_view(upstream.spec.as_ref()?, now)?;
            (breaker.state != BreakerState::Closed).then(|| {
                let key = AlertKey::new(AlertRule::BreakerOpen, Severity::Warning);
                condition(AlertKey { upstream: Some(upstream.name.clone()), ..key }, 1, 0)
            })
        });
        not_closed.collect()
    }

    /// Compares with the last evaluation. A lower count means that the server was restarted.
    fn count_rejected(&mut self, rejected: Option<u64>, now: Time) {
        let Some(count) = rejected else { return };
        let meters = &mut self.alerts.meters;
        let more = match meters.rejected {
            None => 0,
            Some(before) if count >= before => count - before,
            Some(_) => count,
        };
        if more > 0 {
            let continues = meters.rejected_at.is_some_and(|at| now.since(at) < REJECTED_FOR);
            meters.newly_rejected = if continues { meters.newly_rejected + more } else { more };
            meters.rejected_at = Some(now);
        }
        if meters.rejected != Some(count) {
            meters.rejected = Some(count);
            self.alerts.unsaved.meters = true;
        }
    }
}

//! "Métricas Relevantes": all are exported from the start, each with its help text.

use eclusa::fake::Answer;

use super::Proxy;

/// Dashboards and alerts need a zero before the first event.
#[tokio::test]
async fn every_metric_of_the_sources_is_there_from_the_start_with_its_meaning() {
    let proxy = Proxy::start(Answer::status(200), &[]).await;
    let metrics = proxy.program.get("/metrics").await;
    let text = metrics.text();
    for family in [
        "proxy_queue_size",
        "proxy_jobs_total",
        "proxy_fallbacks_total",
        "proxy_timeouts_total",
        "proxy_upstream_errors_total",
        "proxy_rate_limit_penalties_total",
        "proxy_circuit_state",
        "proxy_circuit_open_total",
        "proxy_circuit_close_total",
        "proxy_circuit_half_open_total",
    ] {
        let help = text.lines().find_map(|line| line.strip_prefix(&format!("# HELP {family} ")));
        assert!(help.is_some_and(|help| !help.is_empty()), "no HELP for {family} in {text}");
        assert_eq!(text.matches(&format!("# HELP {family} ")).count(), 1, "{family}");
    }
    for sample in [
        "proxy_queue_size{lane=\"score\"} 0",
        "proxy_jobs_total{lane=\"score\",status=\"processed\"} 0",
        "proxy_jobs_total{lane=\"score\",status=\"failed\"} 0",
        "proxy_jobs_total{lane=\"score\",status=\"dropped\"} 0",
        "proxy_jobs_total{lane=\"score\",status=\"fallback\"} 0",
        "proxy_fallbacks_total{lane=\"score\",motivo=\"breaker_aberto\"} 0",
        "proxy_fallbacks_total{lane=\"score\",motivo=\"timeout\"} 0",
        "proxy_fallbacks_total{lane=\"score\",motivo=\"erro_5xx\"} 0",
        "proxy_fallbacks_total{lane=\"score\",motivo=\"erro_conexao\"} 0",
        "eclusa_calls_avoided_total{upstream=\"bureau\"} 0",
        "proxy_timeouts_total{upstream=\"bureau\"} 0",
        "proxy_rate_limit_penalties_total{upstream=\"bureau\"} 0",
        "proxy_circuit_state{upstream=\"bureau\"} 0",
        "proxy_circuit_open_total{upstream=\"bureau\"} 0",
        "proxy_circuit_close_total{upstream=\"bureau\"} 0",
        "proxy_circuit_half_open_total{upstream=\"bureau\"} 0",
    ] {
        assert!(text.lines().any(|line| line == sample), "no {sample} in {text}");
    }
}

//! The `eclusa` command.

use std::process::ExitCode;

/// Many small allocations on many threads: the system's own allocator takes twice as long for them.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    eclusa::cli::main()
}

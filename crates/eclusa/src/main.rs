//! The `eclusa` command.

use std::process::ExitCode;

/// Many small allocations on many threads: the system allocator takes twice as long.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    eclusa::cli::main()
}

//! Tests of the node as a whole, on fakes: what a sandbox lives through, what the pool keeps, what a restart finds.

mod life;
mod link;
mod model;
mod pool;
mod restart;

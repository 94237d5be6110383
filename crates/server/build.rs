//! Turns the two protocol files into Rust. The compiler is a library, so building needs no `protoc`.

use std::path::PathBuf;

const FILES: [&str; 2] = ["process.proto", "filesystem.proto"];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto");
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    let descriptors = out.join("envd.binpb");
    let mut compiler = protox::Compiler::new(["proto"])?;
    compiler.include_imports(true).include_source_info(false).open_files(FILES)?;
    std::fs::write(&descriptors, compiler.encode_file_descriptor_set())?;
    connectrpc_build::Config::new()
        .descriptor_set(&descriptors)
        .files(&FILES)
        .include_file("_envd.rs")
        .emit_rerun_directives(false)
        .compile()?;
    Ok(())
}

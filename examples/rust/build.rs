// L2S is the folder with libl2s.so and l2s.h that capi/build has written.
fn main() {
    let folder = std::env::var("L2S").expect("L2S names the folder of libl2s.so");
    println!("cargo:rerun-if-env-changed=L2S");
    println!("cargo:rustc-link-search={folder}");
    println!("cargo:rustc-link-arg=-Wl,-rpath,{folder}");
}

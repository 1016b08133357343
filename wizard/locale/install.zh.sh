# shellcheck shell=bash
# What install.sh says, in Chinese; sourced by it where the locale is Chinese.
in_language() {
  case $1 in
    Usage:*)
      printf '%s' "用法：./install.sh [选项…] [词…]
  ./install.sh           安装，并说明接下来输入什么
  ./install.sh demo      安装，然后运行 tunewright demo；其他词同样交给 tunewright
  ./install.sh test      安装，然后运行测试；后面的词交给 pytest
选项写在词之前；torch 的选择会被记住：
  --torch-index URL      从这个索引取 torch；auto 表示重新为这台机器选择
  --reuse-torch          用这台机器的 Python 已有的 torch
  --no-torch             只规划和查看；不装训练所需的东西
  --dev                  也装测试和检查工具
TUNEWRIGHT_HOME=/other/disk ./install.sh   把环境、缓存和任务放在那里。"
      ;;
    'this did not work: %s.'*) printf '%s' '这一步失败了：%s。原因见上面几行（全部在 %s 中）；解决后再运行同样的命令。' ;;
    'cards of compute capability %s to %s') printf '%s' '计算能力为 %s 到 %s 的卡' ;;
    'torch %s has no kernels'*) printf '%s' 'torch %s 没有适用于%s的内核（至少 5.0）：拿掉旧卡，或用 --torch-index URL 指定构建。' ;;
    'NVIDIA driver %s is too old'*) printf '%s' 'NVIDIA 驱动 %s 太旧，torch %s 无法用于%s：请升级到 580 或更新。' ;;
    'no one torch build'*) printf '%s' '没有一个 torch 构建同时适用于%s：请指定一个，旧卡用 --torch-index %s，新卡用 %s。' ;;
    'torch has no build for musl'*) printf '%s' 'torch 没有 musl（Alpine）的构建：请用 Debian、Ubuntu 或 Fedora 镜像，或 --no-torch。' ;;
    'it says: %s') printf '%s' '它说：%s' ;;
    'there is an NVIDIA driver, but'*) printf '%s' '有 NVIDIA 驱动，但 nvidia-smi 没有列出卡（%s）：请重启或升级驱动（容器中设 NVIDIA_DRIVER_CAPABILITIES=compute,utility），或指定构建，--torch-index %s。' ;;
    'An NVIDIA card is on the bus'*) printf '%s' '总线上有 NVIDIA 卡，但没有驱动能用它：改用 CPU 构建。装好驱动后再运行一次。' ;;
    'no Python ≥ 3.11 here has a torch'*) printf '%s' '这里没有带 torch 的 Python ≥ 3.11：去掉 --reuse-torch。' ;;
    'Making a Python 3.12 with conda'*) printf '%s' '用 conda 在 %s 建立 Python 3.12' ;;
    'Fetching a Python 3.12 with uv'*) printf '%s' '用 uv 把 Python 3.12 下载到 %s' ;;
    'the Python here cannot make'*) printf '%s' '这里的 Python 不能建立环境：安装软件包 %s（Debian 和 Ubuntu：apt-get install -y %s），再运行一次。' ;;
    'Python 3.11 or newer is needed'*) printf '%s' '需要 Python 3.11 或更新，这里没有；运行下面的命令，再运行同样的命令：  %s' ;;
    'Trying the torch that is here') printf '%s' '试用已有的 torch' ;;
    'Installing torch from %s') printf '%s' '从 %s 安装 torch' ;;
    'Installing torch from the ordinary'*) printf '%s' '从普通索引安装 torch（%s 没有应答）' ;;
    '%s does not answer, and torch'*) printf '%s' '%s 没有应答，而这台机器的 torch 要从那里取：检查地址和网络，或用 --torch-index URL 指定镜像。' ;;
    'Leaving out torch'*) printf '%s' '不安装 torch 和训练所需的一切。' ;;
    'Leaving out bitsandbytes'*) printf '%s' '不安装 bitsandbytes（QLoRA）：它不支持这台机器。' ;;
    'Leaving out DeepSpeed'*) printf '%s' '不安装 DeepSpeed（ZeRO、卸载）：它要用 g++ 构建自己的一部分，这里没有。' ;;
    '%s is in the way'*) printf '%s' '%s 挡在那里，又不是 Python 环境：移走它，再运行一次。' ;;
    'Making the environment %s with %s') printf '%s' '建立环境 %s，用 %s' ;;
    'Installing torch-npu') printf '%s' '安装 torch-npu' ;;
    'Installing Tunewright'*) printf '%s' '安装 Tunewright 及其所需，均为测试过的版本' ;;
    'Trying torch on the cards') printf '%s' '在卡上试用 torch' ;;
    'Trying torch') printf '%s' '试用 torch' ;;
    '--torch-index needs a URL'*) printf '%s' '--torch-index 后面要有 URL。' ;;
    'there is no option %s'*) printf '%s' '没有选项 %s：./install.sh --help 会列出它们。' ;;
    'Installed in %s'*) printf '%s' '已安装到 %s\n接下来，几分钟完成一次完整的微调：  ./install.sh demo\n用自己的数据：  %s/bin/tunewright\n' ;;
    *) printf '%s' "$1" ;;
  esac
}

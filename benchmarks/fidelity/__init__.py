"""Do networks that are trained with detaug's loader and transforms segment as well as nnU-Net's own?"""
